"""Where groups stand at a source is where they stand here."""
