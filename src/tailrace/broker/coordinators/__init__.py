"""Coordinators: for each partition that this broker leads, a machine of `tailrace.coordinator` and its log."""
