"""The one error of all options."""


class OptionError(ValueError):
    """An option cannot be: the message says which, why, and what to write instead."""
