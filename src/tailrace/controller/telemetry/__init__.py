"""Subscriptions to the metrics of clients, as metadata."""
