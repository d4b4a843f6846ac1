"""The error of a record that does not decode where the reader wants to fail."""


class DecodeError(ValueError):
    """The message says which record, what is wrong with it, and how to read on without it."""
