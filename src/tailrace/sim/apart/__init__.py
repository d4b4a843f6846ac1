"""Brokers apart from their controllers."""
