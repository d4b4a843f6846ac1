"""Requests of share groups that leaders of partitions, and share coordinators, serve."""
