"""Disks that lose what was synced: which files, on which node, at which moments, and what a person does about it."""
