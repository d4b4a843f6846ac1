"""Regular expressions that clients send, matched in linear time: no pattern can hold the broker (RE2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailrace.model.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    import re2  # type: ignore[import-untyped]


# Of one pattern. The names that it is for have 249 characters at most, and a long one would hold the loop while it is
# compiled. RE2 refuses what does not fit into the memory, and takes a slower way where a match would need more.
_LENGTH_MAX = 10_000
_MEMORY_MAX_BYTES = 1 << 20


def compile_pattern(pattern: str) -> re2._Regexp:
    """Raises INVALID_REGULAR_EXPRESSION. Whoever matches asks for the whole text (`fullmatch`), as Kafka does."""
    import re2  # Few brokers are ever asked for one.

    if len(pattern) > _LENGTH_MAX:
        raise KafkaError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"A regular expression of {len(pattern)} characters is too long: {_LENGTH_MAX} are allowed.",
        )
    options = re2.Options()
    options.max_mem = _MEMORY_MAX_BYTES
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error as fault:
        cause = fault.args[0].decode(errors="replace")
        raise KafkaError(
            ErrorCode.INVALID_REGULAR_EXPRESSION, f"{pattern!r} is no regular expression of RE2: {cause}"
        ) from fault
