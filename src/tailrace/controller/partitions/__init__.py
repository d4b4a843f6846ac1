"""Partitions: where they lie, who is in sync, who leads, and how they move."""
