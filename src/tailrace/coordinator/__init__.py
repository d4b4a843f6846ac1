"""Coordinators: pure machines, each replayed from one partition of an internal topic."""
