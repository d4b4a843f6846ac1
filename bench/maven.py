"""Jars that a measurement or a test needs beside ours: brought by Maven, once, into a folder that git ignores."""

import shutil
import subprocess
from pathlib import Path

_CACHE = Path(__file__).parents[1] / ".cache"
_DEADLINE_S = 600.0


class JarsNotFoundError(RuntimeError):
    """Maven is not installed, or cannot bring what the pom names."""


def bring_jars(pom: Path, folder_name: str) -> Path:
    """The folder with all that the pom names. Raises JarsNotFoundError."""
    jars = _CACHE / folder_name
    installed = jars / "pom.xml"
    if not installed.exists() or installed.read_bytes() != pom.read_bytes():
        if shutil.which("mvn") is None:
            raise JarsNotFoundError(f"Maven is not installed, which brings the jars of {pom}")
        shutil.rmtree(jars, ignore_errors=True)
        command = ["mvn", "-q", "-B", "-f", pom, "dependency:copy-dependencies", f"-DoutputDirectory={jars}"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=_DEADLINE_S, check=False)
        if done.returncode != 0:
            raise JarsNotFoundError(f"Maven could not bring the jars of {pom}: {done.stdout.strip()[-200:]}")
        shutil.copy(pom, installed)
    return jars
