"""What a tier costs a month: pure arithmetic over a workload and the prices of a store, which come from a file.

What lies in the tier is what producers sent within the retention, once: a store keeps its own copies. Every byte is put
once, in parts of a fixed size, and the groups that read history fetch their share of it in pieces.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from tailrace.cli.plan.sizing import Workload
from tailrace.cli.plan.units import DAY

_MONTH_S = 30 * DAY
_GB = 1e9


class Prices(NamedTuple):
    """Of a store, in one currency. There are no defaults: a price that nobody looked up is no price."""

    storage_gb_month: float
    put_1000: float
    get_1000: float
    egress_gb: float  # Out of the store to where it is read; 0 within a region.

    @classmethod
    def parse(cls, values: Mapping[str, Any]) -> Prices:
        """Raises ValueError."""
        unknown, missing = sorted(values.keys() - set(cls._fields)), sorted(set(cls._fields) - values.keys())
        if unknown or missing:
            problem = f"{unknown[0]} is no price" if unknown else f"{missing[0]} is missing"
            raise ValueError(f"{problem}: it has to have {', '.join(cls._fields)}")
        for name, value in values.items():
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e6:
                raise ValueError(f"{name} is {value!r}, which is not a number of 0 or more")
        return cls(**{name: float(value) for name, value in values.items()})


class TierUse(NamedTuple):
    """How the tier is used. A segment is one object, in parts of `part_bytes`; two requests more begin and end it."""

    history_reads: float = 0.1  # How often a month everything that lies there is read, all groups and jobs together.
    segment_bytes: float = float(1 << 30)
    part_bytes: float = float(8 << 20)
    read_bytes: float = float(1 << 20)  # Of one request by a broker.


class TierCost(NamedTuple):
    stored_bytes: float
    puts: float  # a month
    gets: float
    read_bytes: float
    storage: float
    put: float
    get: float
    egress: float

    @property
    def total(self) -> float:
        return self.storage + self.put + self.get + self.egress

    def to_json(self) -> dict[str, Any]:
        return self._asdict() | {"total": self.total}


def decide_cost(workload: Workload, use: TierUse, prices: Prices) -> TierCost:
    stored = workload.ingress * workload.retention_s
    segments = workload.ingress * _MONTH_S / use.segment_bytes
    parts = max(use.segment_bytes / use.part_bytes, 1.0)
    puts = segments * (parts + (2 if parts > 1 else 0))
    read = stored * use.history_reads
    # The footer of a segment is one request more.
    gets = read / use.read_bytes + read / use.segment_bytes
    return TierCost(
        stored_bytes=stored,
        puts=puts,
        gets=gets,
        read_bytes=read,
        storage=stored / _GB * prices.storage_gb_month,
        put=puts / 1000 * prices.put_1000,
        get=gets / 1000 * prices.get_1000,
        egress=read / _GB * prices.egress_gb,
    )
