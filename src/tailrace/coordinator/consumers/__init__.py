"""Groups whose assignment the broker computes (KIP-848)."""
