"""The Python that everything of ours runs on, and how it was built: the same code is a fifth slower or faster by it.

Profile-guided optimization (PGO) and link-time optimization (LTO) are told by the build's own record (`sysconfig`),
except by Debian and Ubuntu: their packages are built with both, as python3.11's changelog says, and their record is
cleaned of it. So the package is looked up, and the speed of some plain Python is measured besides, which can be
compared between machines and builds whatever they say of themselves.
"""

import platform
import subprocess
import sys
import sysconfig
import time
from pathlib import Path
from typing import Any, NamedTuple

_LOOPS = 300_000
_TIMES = 5
_DEADLINE_S = 10.0


class Build(NamedTuple):
    pgo: bool
    lto: bool
    source: str  # where that is known from

    @property
    def is_optimized(self) -> bool:
        return self.pgo and self.lto

    @property
    def told(self) -> str:
        marks = [f"{'with' if has else 'without'} {what}" for what, has in (("PGO", self.pgo), ("LTO", self.lto))]
        return f"built {' and '.join(marks)} ({self.source})"


def interpreter() -> dict[str, Any]:
    """For results: what it is, how it was built, and how fast it runs a loop."""
    build = python_build()
    return {
        "version": platform.python_version(),
        "implementation": platform.python_implementation(),
        "compiler": platform.python_compiler(),
        "optimization": str(sysconfig.get_config_var("OPT") or ""),
        "pgo": build.pgo,
        "lto": build.lto,
        "told": f"{_name()}, {platform.python_compiler()}, {build.told}",
        "loop_ms": round(loop_ms(), 1),
    }


def _name() -> str:
    return f"{platform.python_implementation()} {platform.python_version()}"


def python_build() -> Build:
    package = _package(Path(sys.executable).resolve())
    return read_build({name: str(value) for name, value in sysconfig.get_config_vars().items()}, package)


def read_build(record: dict[str, str], package: str) -> Build:
    """`record` is sysconfig's; `package` is that of Debian or Ubuntu which the interpreter is from, or empty."""
    if package:
        return Build(pgo=True, lto=True, source=f"as all of the distribution's; package {package}")
    arguments = record.get("CONFIG_ARGS", "")
    flags = " ".join(record.get(name, "") for name in ("PY_CORE_CFLAGS", "PY_CORE_LDFLAGS", "CFLAGS_NODIST"))
    pgo = "--enable-optimizations" in arguments or "-fprofile-use" in flags or "-fprofile-instr-use" in flags
    lto = ("--with-lto" in arguments and "--with-lto=no" not in arguments) or "-flto" in flags
    return Build(pgo=pgo, lto=lto, source="by its build's record")


def loop_ms() -> float:
    """The best of some turns of plain Python: calls, attributes, dicts, slices of bytes."""
    return min(_looped_ms() for _ in range(_TIMES))


def _looped_ms() -> float:
    begun = time.process_time()
    seen: dict[int, int] = {}
    data = bytes(range(256))
    for index in range(_LOOPS):
        key = index & 1023
        seen[key] = seen.get(key, 0) + len(data[key & 127 : 128])
    return (time.process_time() - begun) * 1e3


def _package(executable: Path) -> str:
    """Name and version of the package that brought it, empty if none did or if nobody can say."""
    try:
        owner = _output("dpkg-query", "--search", str(executable)).partition(":")[0]
        return _output("dpkg-query", "--show", "--showformat=${Package} ${Version}", owner)
    except (OSError, subprocess.SubprocessError):
        return ""


def _output(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=_DEADLINE_S)
    return done.stdout.strip()
