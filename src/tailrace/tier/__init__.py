"""Tiered storage: closed segments as objects of a store, and what is known of them.

`format` and `metadata` are pure: bytes of objects, and the machine of __remote_log_metadata. `store` is the way to a
store, with limits. What is visible is decided by the metadata alone, never by what a store lists.
"""
