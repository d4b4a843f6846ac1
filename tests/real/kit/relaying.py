"""A relay under trial, until it is killed: `python -m tests.real.kit.relaying DATABASE BOOTSTRAP [POINT COUNT]`."""

import asyncio
import sys

from sqlalchemy import MetaData, create_engine

from tailrace.kit.outbox import Relay, RelayOptions, outbox_table

from .billing import die_at

if __name__ == "__main__":
    database, bootstrap, *death = sys.argv[1:]
    if death:
        die_at(death[0], int(death[1]))
    options = {"bootstrap.servers": bootstrap, "transaction.timeout.ms": 3000}
    table = outbox_table(MetaData())
    asyncio.run(Relay(create_engine(database), table, options, RelayOptions(rows_max=10, poll_ms=20)).run())
