"""Every row of the comparison, in the order of the page."""

from bench.versus.rows import Row
from bench.versus.workloads.produce import PRODUCE

ROWS: tuple[Row, ...] = (*PRODUCE,)
