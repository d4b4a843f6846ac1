"""The committed offsets of one partition's groups."""


class OffsetStore:
    pass
