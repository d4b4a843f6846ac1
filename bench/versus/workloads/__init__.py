"""Every row of the comparison, in the order of the page."""

from bench.versus.rows import Row
from bench.versus.workloads.consume import CONSUME
from bench.versus.workloads.latency import LATENCY
from bench.versus.workloads.produce import PRODUCE

ROWS: tuple[Row, ...] = (*PRODUCE, *CONSUME, *LATENCY)
