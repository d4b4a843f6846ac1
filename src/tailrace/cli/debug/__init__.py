"""`tailrace debug`: what a node on this machine is doing right now, for support.

    stacks    what each thread and each task of the node is at
    profile   where its loop spends its time, by samples
    bundle    all that helps to understand it in one file, without secrets

The node is asked over a socket in its data folder that only its own user can open (`server`). A node whose loop is
stuck does not answer; its stacks come by a signal then, in its log.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import socket
from contextlib import contextmanager
from glob import escape, glob
from typing import TYPE_CHECKING, Any

from tailrace.cli import Actions, CommandError
from tailrace.cli.output import note

if TYPE_CHECKING:
    from collections.abc import Iterator

DESCRIPTION = "Look into a node on this machine: its stacks, where its loop spends its time, a bundle for support."
EXAMPLES = """\
examples:
  tailrace debug stacks --data ./data
  tailrace debug profile --data ./data/broker-1 --seconds 10 --folded out.folded
  tailrace debug bundle --data ./data --output bundle.tar.gz
"""

SOCKET_NAME = "debug.sock"
PROCESS_NAME = "debug.pid"
_ANSWER_SECONDS = 10.0


def register(parser: argparse.ArgumentParser) -> None:
    actions = Actions(parser)
    stacks = actions.add("stacks", "show what each thread and task is at", "stacks --data ./data")
    profile = actions.add("profile", "show where the loop spends its time", "profile --data ./data --seconds 10")
    profile.add_argument("--folded", metavar="FILE", help="also write all stacks here, as flame graphs want them")
    bundle = actions.add(
        "bundle", "write a file for support, without secrets", "bundle --data ./data --output b.tar.gz"
    )
    bundle.add_argument("--output", metavar="FILE", required=True, help="a .tar.gz that is made")
    for each, seconds in ((profile, 5.0), (bundle, 2.0)):
        each.add_argument("--seconds", type=float, default=seconds, help=f"how long to sample (default: {seconds:g})")
    for each, run in ((stacks, _run_stacks), (profile, _run_profile), (bundle, _run_bundle)):
        each.add_argument(
            "--data", metavar="DIR", required=True, help="a data folder of the node, or the folder of a whole cluster"
        )
        each.set_defaults(run=run)


def _run_stacks(options: argparse.Namespace) -> int:
    for folder in _nodes(options.data):
        print(f"== {folder}")
        print(_ask_stacks(folder))
    return 0


def _ask_stacks(folder: str) -> str:
    try:
        return str(ask(folder, {"what": "stacks"})["stacks"])
    except TimeoutError:
        return _signal_stacks(folder)


def _signal_stacks(folder: str) -> str:
    with open(f"{folder}/{PROCESS_NAME}", encoding="ascii") as file:
        process_id = int(file.read())
    os.kill(process_id, signal.SIGUSR2)
    return f"its loop does not answer: process {process_id} was told to write its stacks to its log (stderr)"


def _run_profile(options: argparse.Namespace) -> int:
    from tailrace.cli.debug.sampling import Samples

    for folder in _nodes(options.data):
        samples = Samples.from_json(_ask_patiently(folder, {"what": "profile", "seconds": options.seconds}))
        print(f"== {folder}")
        print(samples.table())
        if options.folded:
            with open(options.folded, "a", encoding="utf-8") as file:
                file.write(samples.folded())
    return 0


def _run_bundle(options: argparse.Namespace) -> int:
    from tailrace.cli.debug.bundle import write_bundle

    count = write_bundle(options.output, _nodes(options.data), seconds=options.seconds)
    note(f"wrote {options.output}: {count} files; it has names of topics and clients, and no passwords or keys")
    return 0


def _ask_patiently(folder: str, question: dict[str, Any]) -> dict[str, Any]:
    try:
        return ask(folder, question)
    except TimeoutError:
        raise CommandError(f"the node in {folder} does not answer: its loop is stuck; see `debug stacks`") from None


def ask(folder: str, question: dict[str, Any]) -> dict[str, Any]:
    """Raises TimeoutError if the node's loop does not answer, CommandError if there is no node."""
    seconds = _ANSWER_SECONDS + float(question.get("seconds", 0.0))
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(seconds)
        try:
            with short_path(folder) as path:
                connection.connect(path)
        except (FileNotFoundError, ConnectionRefusedError):
            raise CommandError(f"no node runs in {folder}") from None
        except PermissionError:
            raise CommandError(f"only the user who runs the node may look into it: {folder}") from None
        connection.sendall(json.dumps(question).encode() + b"\n")
        connection.shutdown(socket.SHUT_WR)
        with connection.makefile("rb") as stream:
            answer = stream.read()
    if not answer:
        raise CommandError(f"the node in {folder} ended meanwhile")
    told: dict[str, Any] = json.loads(answer)
    if "error" in told:
        raise CommandError(told["error"])
    return told


@contextmanager
def short_path(folder: str) -> Iterator[str]:
    """Of the socket: a name of one has 107 bytes at most, and folders may be deeper."""
    descriptor = os.open(folder, os.O_DIRECTORY | os.O_RDONLY)
    try:
        yield f"/proc/self/fd/{descriptor}/{SOCKET_NAME}"
    finally:
        os.close(descriptor)


def _nodes(folder: str) -> list[str]:
    """The folder itself, or those of a cluster in it."""
    found = [os.path.dirname(path) for path in sorted(glob(f"{escape(folder)}/*/{SOCKET_NAME}"))]
    if os.path.exists(f"{folder}/{SOCKET_NAME}"):
        return [folder]
    if not found:
        raise CommandError(f"no node runs in {folder}, nor in a folder of it: name its data folder (log.dirs)")
    return found
