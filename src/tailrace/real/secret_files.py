"""Files with secrets that others can read: the log says so, once for each file."""

from __future__ import annotations

import os
import stat
from functools import lru_cache

from tailrace.model import events

_log = events.logger("secrets")


def can_others_read(path: str) -> bool:
    """Raises OSError."""
    return bool(os.stat(path).st_mode & (stat.S_IRGRP | stat.S_IROTH))


@lru_cache(maxsize=256)
def warn_if_open(path: str) -> None:
    try:
        is_open = can_others_read(path)
    except OSError:
        return  # Whoever reads it says so.
    if is_open:
        # The path is in the sentence, for those whose log has no facts.
        _log.warning(f"others can read {path}, which holds a key: chmod 600 {path}")
