"""How a broker's cost grows: throughput, latency, memory and processor time over one quantity at a time.

`python -m bench.growth [--only NAME ...]` writes growth.json, from which `bench.versus.page` makes charts.
"""

from typing import NamedTuple


class Point(NamedTuple):
    """The last word of a figure's name is its unit."""

    x: float
    figures: dict[str, float]
