"""Delayed delivery: records that wait in slots of due time, and a mover that brings them to their topics."""
