"""Changes of a database that a topic holds, as rows of a pipeline."""
