"""Transactions in a run: producers with few ids, loops that consume, transform and produce, and readers."""
