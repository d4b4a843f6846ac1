"""The Python that Spark on this machine starts beside its JVM.

Spark puts archives in front of all else that its Python finds: its own modules as a zip, py4j, and a jar. What is in a
zip is compiled whenever it is imported, 0.45 s of processor time in each process that Spark starts, of which a stream
has half a dozen; and each task reads the lists of all three anew. The same modules lie unpacked beside them.
"""

from __future__ import annotations

import importlib.util
import os
import shlex
import stat
import sys
from hashlib import sha256
from pathlib import Path


def worker_python(cache: Path) -> str:
    """A program that runs this Python without Spark's archives. This Python itself, where those may be another Spark
    than the one that is installed with it, or where programs cannot be kept."""
    spec = importlib.util.find_spec("pyspark")
    installed = Path(spec.origin).parent if spec is not None and spec.origin is not None else None
    chosen = os.environ.get("SPARK_HOME")
    if installed is None or (chosen and Path(chosen).resolve() != installed.resolve()):
        return sys.executable
    text = _SCRIPT.format(home=shlex.quote(chosen or str(installed)), python=shlex.quote(sys.executable))
    script = cache / "workers" / sha256(text.encode()).hexdigest()[:16] / Path(sys.executable).name
    try:
        write_script(script, text)
    except OSError:  # Nobody but us needs this folder, and Spark does without.
        return sys.executable
    return str(script) if os.access(script, os.X_OK) else sys.executable


def write_script(script: Path, text: str) -> None:
    """Whoever starts at the same time never runs half of it."""
    if script.exists() and script.read_text() == text:
        return
    script.parent.mkdir(parents=True, exist_ok=True)
    part = script.with_suffix(f".{os.getpid()}")
    part.write_text(text)
    part.chmod(part.stat().st_mode | stat.S_IXUSR)
    part.replace(script)


# What the caller has in PYTHONPATH stays, and its order.
_SCRIPT = """#!/bin/sh
set -f
rest=
IFS=:
for part in $PYTHONPATH; do
  case $part in
    {home}/*) ;;
    *) rest=$rest:$part ;;
  esac
done
unset IFS
export PYTHONPATH="${{rest#:}}"
exec {python} "$@"
"""
