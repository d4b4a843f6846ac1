"""The one error of an audit."""


class AuditError(Exception):
    """The two sides cannot be compared: the message says why, and what to do."""
