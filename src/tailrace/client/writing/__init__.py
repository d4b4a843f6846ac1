"""Batches of a partition on their way to its leader, in whoever's name."""
