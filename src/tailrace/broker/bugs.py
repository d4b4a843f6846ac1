"""Whether a bug of ours that was met says that data cannot be trusted any more."""

from __future__ import annotations

from typing import TypeGuard

# Layers whose failed assertions are not passed over.
_TRUSTED_LAYERS = tuple(f"tailrace.{layer}." for layer in ("log", "replica", "raft", "controller", "coordinator"))


def is_about_data(error: BaseException) -> TypeGuard[AssertionError]:
    """An assertion that failed below the shell."""
    return isinstance(error, AssertionError) and _raised_in(error).startswith(_TRUSTED_LAYERS)


def _raised_in(error: BaseException) -> str:
    """The name of the module that raised it."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return "" if trace is None else str(trace.tb_frame.f_globals.get("__name__", ""))
