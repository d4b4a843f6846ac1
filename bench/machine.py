"""What a figure was taken on: the commit and the machine."""

import contextlib
import mmap
import os
import platform
import re
import subprocess
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).parent


_clients: list[int] = []


def commit() -> str:
    return _git("rev-parse", "--short", "HEAD") + ("+changes" if _git("status", "--porcelain", "../src") else "")


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], capture_output=True, text=True, cwd=_ROOT, check=False)
    return done.stdout.strip()


def machine() -> dict[str, Any]:
    processor = platform.processor() or platform.machine()
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            processor = line.partition(":")[2].strip()
            break
    return {
        "processor": processor,
        "cores": len(os.sched_getaffinity(0)),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9),
        "kernel": platform.release(),
    }


def busy_s() -> float:
    """Seconds of all cores together that programs have worked, here or, as stolen time, on other virtual machines of
    the same host. Interrupts are left out: no program is charged with them."""
    fields = Path("/proc/stat").read_text().splitlines()[0].split()
    user, nice, system, _idle, _waiting, _interrupts, _soft_interrupts, stolen = map(int, fields[1:9])
    return (user + nice + system + stolen) / os.sysconf("SC_CLK_TCK")


def note_client(process_id: int) -> None:
    """A child that lives on from one measurement to the next: what it does is ours, and not that of others."""
    _clients.append(process_id)


def own_s() -> float:
    """Seconds that this process has worked, its children that have ended, and clients that live on."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system + sum(map(worked_s, _clients))


def worked_s(process_id: int) -> float:
    fields = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def warm_memory(size_bytes: int = 2 << 30) -> None:
    """Touches memory that is free and leaves it free. Virtual machines give free memory back to their host after some
    seconds, and then whoever touches it next pays: 2.3 s for each GB where this was written, against 0.1 s for memory
    that is there. Without it a figure tells who came first."""
    size_bytes = min(size_bytes, _free_bytes() // 2) // mmap.PAGESIZE * mmap.PAGESIZE
    with mmap.mmap(-1, size_bytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        with contextlib.suppress(OSError):  # A kernel without them.
            memory.madvise(mmap.MADV_HUGEPAGE)
        memory[:: mmap.PAGESIZE] = bytes(size_bytes // mmap.PAGESIZE)


def _free_bytes() -> int:
    (line,) = re.findall(r"MemFree: +(\d+) kB", Path("/proc/meminfo").read_text())
    return int(line) * 1024
