"""What a broker coordinates: groups, and transactions."""
