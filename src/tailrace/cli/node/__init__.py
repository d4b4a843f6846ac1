"""The commands that are nodes: `up`, `format` and `broker`; and the supervisor of a cluster on one machine."""
