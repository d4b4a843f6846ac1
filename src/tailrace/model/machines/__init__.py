"""Which brokers stand on one machine, and so are lost together: the failure domain below the rack.

By default those that are reached under the same hosts, by whatever listeners: brokers behind one balancer share one
address of several, and not all. Where that is wrong the setting `tailrace.machines` names them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

_PATTERN = re.compile(r"([^\s:,]+):(\d{1,10})(?:-(\d{1,10}))?")


class MachineBrokers(NamedTuple):
    """The brokers from `first` to `last` stand on the machine `name`."""

    name: str
    first: int
    last: int

    def __str__(self) -> str:
        ids = str(self.first) if self.first == self.last else f"{self.first}-{self.last}"
        return f"{self.name}:{ids}"


def parse_machine_brokers(text: str) -> MachineBrokers:
    match = _PATTERN.fullmatch(text)
    if match is None or int(match[2]) > int(match[3] or match[2]):
        raise ValueError("Write machine:id or machine:first-last for each, such as one:1-4,two:5-8.")
    return MachineBrokers(match[1], int(match[2]), int(match[3] or match[2]))


def machine_of(node_id: int, hosts: Iterable[str], named: Sequence[MachineBrokers]) -> str:
    """`hosts` are those of all its listeners. One that tells none stands alone."""
    for each in named:
        if each.first <= node_id <= each.last:
            return each.name
    # Neither a host nor a name that somebody has given has a space in it: they never meet by chance.
    known = sorted({host for host in hosts if host})
    return " ".join(["at", *known]) if known else f"of {node_id}"
