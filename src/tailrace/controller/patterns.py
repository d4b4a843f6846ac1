"""Regular expressions that come from outside, matched in linear time: no pattern can hold the broker (RE2)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailrace.model.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    import re2  # type: ignore[import-untyped]


# Limits of one pattern. A long one holds the loop while it is compiled, and so does one with many steps while it is
# matched: 2,500 of them take 2.5 ms at worst for a topic's name of 249 characters. What people write has less than 100.
_LENGTH_MAX = 10_000
_SHOWN_MAX = 100
_STEPS_MAX = 2_500
# RE2 refuses what does not fit into it, and takes a slower way where a match would need more.
_MEMORY_MAX_BYTES = 1 << 18


def compile_pattern(pattern: str) -> re2._Regexp:
    """Raises INVALID_REGULAR_EXPRESSION. Whoever matches asks for the whole text (`fullmatch`), as Kafka does."""
    import re2  # Few brokers are ever asked for one.

    if len(pattern) > _LENGTH_MAX:
        raise _refusal(f"A regular expression of {len(pattern)} characters is too long: {_LENGTH_MAX} are allowed.")
    options = re2.Options()
    options.max_mem = _MEMORY_MAX_BYTES
    options.never_capture = True  # Nobody asks for groups, and telling them takes several times as long.
    options.log_errors = False
    try:
        compiled = re2.compile(pattern, options)
    except re2.error as fault:
        cause = fault.args[0].decode(errors="replace")
        raise _refusal(f"{_shown(pattern)!r} is no regular expression of RE2: {cause}") from fault
    if compiled.programsize > _STEPS_MAX:
        raise _refusal(
            f"{_shown(pattern)!r} is too complex: {compiled.programsize} steps, and {_STEPS_MAX} are allowed."
        )
    return compiled


def _refusal(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REGULAR_EXPRESSION, message)


def _shown(pattern: str) -> str:
    return pattern if len(pattern) <= _SHOWN_MAX else f"{pattern[:_SHOWN_MAX]}..."
