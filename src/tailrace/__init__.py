"""Tailrace: a durable message queue that speaks the Apache Kafka wire protocol, in Python.

ARCHITECTURE.md is the map. Nothing is imported here: a command pays only for what it uses.
"""

__version__ = "0.1.0"
