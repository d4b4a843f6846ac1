"""Several nodes on one machine: which there are, and the supervisor of their processes."""

from __future__ import annotations

import os

from tailrace.cli import CommandError

BROKERS_MAX = 100
PROCESSES_HELP = "how many brokers share this machine: a number, or auto for one a core (default: 1)"


def parse_processes(text: str) -> int:
    """Raises CommandError."""
    processes = len(os.sched_getaffinity(0)) if text == "auto" else int(text) if text.isdecimal() else 0
    if not 1 <= processes <= BROKERS_MAX:
        raise CommandError(f"--processes {text}: expected auto, or a number from 1 to {BROKERS_MAX}")
    return processes
