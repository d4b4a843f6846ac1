"""The short way of OffsetCommit: see `taking`."""
