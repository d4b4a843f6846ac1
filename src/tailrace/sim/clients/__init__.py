"""Clients and operators in a run: what they do, and the ledger of what they were told."""
