"""Segments read straight from the bucket: what the tier has of each partition, and how tasks read it."""
