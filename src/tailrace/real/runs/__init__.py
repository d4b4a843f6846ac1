"""Runs of pipelines on this machine: what each tells of itself in a file, and whether it lives."""
