"""Committed offsets: commit, fetch, expiry, and those of transactions that are not decided yet."""
