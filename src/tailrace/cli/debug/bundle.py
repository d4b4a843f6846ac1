"""One file for support: of each node its state, stacks and a profile, and of the machine what bears on them.

It has no secrets: nodes tell no settings that may hold one. It has names of topics, clients and hosts.
"""

from __future__ import annotations

import io
import json
import os
import tarfile
import time
from collections.abc import Callable, Sequence

from tailrace.cli import CommandError
from tailrace.cli.debug import _ask_stacks, ask
from tailrace.cli.debug.sampling import Samples

_MACHINE = ("/proc/meminfo", "/proc/loadavg", "/proc/pressure/cpu", "/proc/pressure/io", "/proc/pressure/memory")


def write_bundle(path: str, folders: Sequence[str], *, seconds: float) -> int:
    files: dict[str, str] = {name.strip("/"): text for name in _MACHINE if (text := _read(name))}
    for folder in folders:
        name = os.path.basename(os.path.abspath(folder))
        for part, tell in _parts(folder, seconds).items():
            files[f"{name}/{part}"] = _tell(tell)
    try:
        with tarfile.open(path, "x:gz") as archive:
            for name, text in files.items():
                data = text.encode()
                entry = tarfile.TarInfo(f"tailrace-bundle/{name}")
                entry.size, entry.mtime, entry.mode = len(data), int(time.time()), 0o600
                archive.addfile(entry, io.BytesIO(data))
    except OSError as error:
        raise CommandError(f"cannot write {path}: {error.strerror}") from None
    return len(files)


def _parts(folder: str, seconds: float) -> dict[str, Callable[[], str]]:
    def profile() -> str:
        samples = Samples.from_json(ask(folder, {"what": "profile", "seconds": seconds}))
        return f"{samples.table()}\n\n{samples.folded()}"

    return {
        "state.json": lambda: json.dumps(ask(folder, {"what": "state"}), indent=2),
        "stacks.txt": lambda: _ask_stacks(folder),
        "profile.txt": profile,
        "files.txt": lambda: _files(folder),
    }


def _tell(tell: Callable[[], str]) -> str:
    """What cannot be told says why: a node that is stuck is just what a bundle is made for."""
    try:
        return tell()
    except TimeoutError:
        return "its loop did not answer in time"
    except (CommandError, OSError) as error:
        return f"not told: {error}"


def _files(folder: str) -> str:
    lines = []
    for place, _, names in os.walk(folder):
        for name in sorted(names):
            status = os.lstat(os.path.join(place, name))
            lines.append(f"{status.st_size:>14} {os.path.relpath(os.path.join(place, name), folder)}")
    return "\n".join(lines)


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except OSError:
        return ""
