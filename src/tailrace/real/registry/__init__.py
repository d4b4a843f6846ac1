"""What asks a schema registry."""
