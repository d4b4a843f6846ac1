"""An app that is kept alive: started again whenever it dies, until standard input ends.

This is how `tailrace up` runs the apps beside its brokers. The process that keeps only watches; the app is its child.
Both end with the process that started them, however that ends: the pipe to standard input ends then.
"""

from __future__ import annotations

import argparse
import os
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable
from typing import NoReturn

from tailrace.cli import CommandError

_STDIN = 0
_RESTART_PAUSE_S = 0.5
_RESTART_PAUSE_MAX_S = 10.0
_LONG_LIFE_S = 30.0


def add_keep_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--keep",
        action="store_true",
        help="start it again whenever it dies, until standard input ends (this is how `tailrace up` runs it)",
    )


def keep(name: str, run: Callable[[int], int]) -> int:
    """`run` is the app; it is given the pipe that ends with the process that started this one."""
    stopping = False
    child: int | None = None

    def stop(*_: object) -> None:
        nonlocal stopping
        stopping = True
        if child is not None:
            os.kill(child, signal.SIGTERM)

    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, stop)
    pause_s = _RESTART_PAUSE_S
    while not stopping:
        started = time.monotonic()
        child = os.fork()
        if child == 0:
            _become(run)
        _, status = os.waitpid(child, 0)
        child = None
        if stopping or _is_orphaned():
            return 0
        if time.monotonic() - started > _LONG_LIFE_S:
            pause_s = _RESTART_PAUSE_S
        ending = os.waitstatus_to_exitcode(status)
        print(f"tailrace: the {name} ended ({ending}), and is started again", file=sys.stderr)
        time.sleep(pause_s)
        pause_s = min(pause_s * 2, _RESTART_PAUSE_MAX_S)
    return 0


def _become(run: Callable[[int], int]) -> NoReturn:
    exit_code = 1
    try:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        exit_code = run(_STDIN)
    except CommandError as error:
        print(f"tailrace: {error}", file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(exit_code)


def _is_orphaned() -> bool:
    """Whether standard input has ended: nobody writes to it."""
    ready, _, _ = select.select([_STDIN], [], [], 0)
    return bool(ready)
