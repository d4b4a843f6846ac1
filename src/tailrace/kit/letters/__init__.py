"""Dead letters: records that wait in a topic until a person decides."""
