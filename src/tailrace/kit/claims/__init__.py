"""Claim check: large values lie in an object store, and records carry what they are fetched by."""

from tailrace.kit.claims.claims import ClaimDamagedError, ClaimMissingError, Claims

__all__ = ["ClaimDamagedError", "ClaimMissingError", "Claims"]
