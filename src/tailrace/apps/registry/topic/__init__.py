"""The topic `_schemas`: made, read to its end and on, and written by one registry at a time."""
