"""Where a loop spends its time: its stack, looked at many times a second by a timer's signal.

The signal comes to the thread of the loop, between two of its instructions. No thread is needed, and nothing is slowed
down while nobody samples. A stack that ends in the selector is a loop that has nothing to do.
"""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from collections.abc import Iterator
from types import FrameType
from typing import Any

INTERVAL_SECONDS = 0.004
_DEPTH_MAX = 60
_SHOWN = 15
_IDLE = "select (selectors.py)"


class Samples:
    """How often each stack was seen, outermost function first."""

    def __init__(self, stacks: Counter[tuple[str, ...]], seconds: float) -> None:
        self.stacks = stacks
        self.seconds = seconds

    @classmethod
    def from_json(cls, told: dict[str, Any]) -> Samples:
        return cls(Counter({tuple(stack): count for stack, count in told["stacks"]}), told["seconds"])

    def to_json(self) -> dict[str, Any]:
        return {"seconds": self.seconds, "stacks": [[list(stack), count] for stack, count in self.stacks.items()]}

    def folded(self) -> str:
        return "".join(f"{';'.join(stack)} {count}\n" for stack, count in sorted(self.stacks.items()))

    def table(self) -> str:
        total = sum(self.stacks.values())
        if not total:
            return "no sample was taken"
        idle = sum(count for stack, count in self.stacks.items() if stack[-1] == _IDLE)
        own: Counter[str] = Counter()
        within: Counter[str] = Counter()
        for stack, count in self.stacks.items():
            own[stack[-1]] += count
            for name in set(stack):
                within[name] += count
        lines = [f"{total} samples in {self.seconds:.1f} s; the loop was idle in {idle / total:.0%} of them"]
        lines.append(f"{'own':>6} {'with calls':>11}  function")
        for name, count in own.most_common(_SHOWN):
            lines.append(f"{count / total:6.1%} {within[name] / total:11.1%}  {name}")
        return "\n".join(lines)


async def sample(seconds: float) -> Samples:
    """Of the thread that calls it, which must be the main one. One at a time: the caller sees to it."""
    seen: Counter[tuple[str, ...]] = Counter()

    def look(_number: int, frame: FrameType | None) -> None:
        seen[tuple(reversed([_name(each) for each in frames(frame)]))] += 1

    before = signal.signal(signal.SIGALRM, look)
    signal.setitimer(signal.ITIMER_REAL, INTERVAL_SECONDS, INTERVAL_SECONDS)
    try:
        await asyncio.sleep(seconds)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    return Samples(seen, seconds)


def frames(frame: FrameType | None) -> Iterator[FrameType]:
    """Innermost first, and no deeper than is of use."""
    for _ in range(_DEPTH_MAX):
        if frame is None:
            return
        yield frame
        frame = frame.f_back


def place(frame: FrameType) -> str:
    return f"{_short(frame.f_code.co_filename)}:{frame.f_lineno} {frame.f_code.co_qualname}"


def _name(frame: FrameType) -> str:
    code = frame.f_code
    # Selectors differ by the machine: all of them are `select`.
    name = code.co_name if is_idle(frame) else code.co_qualname
    return f"{name} ({_short(code.co_filename)})"


def is_idle(frame: FrameType | None) -> bool:
    return frame is not None and frame.f_code.co_filename.endswith("/selectors.py")


def _short(path: str) -> str:
    """Within our package, or the name of the file alone."""
    before, found, after = path.rpartition("/tailrace/")
    return after if found and before else path.rpartition("/")[2]
