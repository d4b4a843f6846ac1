"""The way to an object store: time limits, tries, a circuit, and bounds of what is under way."""
