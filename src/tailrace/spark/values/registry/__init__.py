"""Values by a schema registry: what was written with any version of a schema, read as one, and the other way round."""
