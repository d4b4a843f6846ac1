"""Every row of the comparison, in the order of the page."""

from bench.versus.rows import Row
from bench.versus.workloads.consume import CONSUME
from bench.versus.workloads.coordination import COORDINATION, TRANSACTIONS
from bench.versus.workloads.failover import FAILOVER
from bench.versus.workloads.instead import INSTEAD
from bench.versus.workloads.latency import LATENCY
from bench.versus.workloads.produce import COLD, PRODUCE
from bench.versus.workloads.queues import QUEUES
from bench.versus.workloads.requests import REQUESTS
from bench.versus.workloads.start import START
from bench.versus.workloads.tools import TOOLS
from bench.versus.workloads.units import UNITS

ROWS: tuple[Row, ...] = (
    *PRODUCE,
    *CONSUME,
    *LATENCY,
    *REQUESTS,
    *UNITS,
    *START,
    *COLD,
    *FAILOVER,
    *COORDINATION,
    *TRANSACTIONS,
    *QUEUES,
    *TOOLS,
    *INSTEAD,
)
# What `--alone` takes if it is told no other: rows that come late among those that share their brokers.
SAMPLE = ("produce-rf1-base", "commits-100-connections", "requests-rf3-100-connections")
