"""`up --alerts`: the process that tells of alerts, beside the nodes. It ends with `up`, however that ends."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_STOP_SECONDS = 10.0


@contextmanager
def alerts_beside(rules: str, folder: str) -> Iterator[None]:
    """`rules` is a file, or empty for the shipped ones."""
    command = [sys.executable, "-m", "tailrace", "alerts", "run", "--with-parent", "--data", folder]
    if rules:
        command += ["--rules", rules]
    # It ends when the other end of its stdin does.
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)  # noqa: S603 (our own)
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdin is not None:
            process.stdin.close()
