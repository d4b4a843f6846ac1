"""Every row of the comparison, in the order of the page."""

from bench.versus.rows import Row
from bench.versus.workloads.consume import CONSUME
from bench.versus.workloads.coordination import COORDINATION, TRANSACTIONS
from bench.versus.workloads.failover import FAILOVER
from bench.versus.workloads.instead import INSTEAD
from bench.versus.workloads.latency import LATENCY
from bench.versus.workloads.many import MANY
from bench.versus.workloads.produce import PRODUCE
from bench.versus.workloads.requests import REQUESTS
from bench.versus.workloads.start import START
from bench.versus.workloads.tools import TOOLS

ROWS: tuple[Row, ...] = (
    *PRODUCE,
    *CONSUME,
    *LATENCY,
    *REQUESTS,
    *START,
    *FAILOVER,
    *MANY,
    *COORDINATION,
    *TRANSACTIONS,
    *TOOLS,
    *INSTEAD,
)
