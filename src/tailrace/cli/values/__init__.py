"""Keys and values that have a schema."""
