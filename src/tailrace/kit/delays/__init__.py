"""Delayed delivery: records that wait in slots of due time, and a mover that brings them to their topics."""

from tailrace.kit.delays.sending import Cancelled, DelayError, Delays

__all__ = ["Cancelled", "DelayError", "Delays"]
