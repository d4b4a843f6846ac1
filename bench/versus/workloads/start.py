"""How soon brokers are ready, and what memory they take: idle, and at work."""

import time

from bench import librdkafka
from bench.versus.processes import Running
from bench.versus.rows import Effort, Row
from bench.versus.workloads.produce import BASE, write
from bench.versus.workloads.topics import topic

SECTION = "Start and memory"
_IDLE_S = 3.0
_LOADED_S = 10.0
_CONSUMED_MESSAGES = 200_000


def start(running: Running, _effort: Effort) -> float:
    """Seconds from the start of the processes until each answers with all brokers in its Metadata."""
    return running.ready_after_s


def idle(running: Running, _effort: Effort) -> float:
    """MB of all processes together, some seconds after they were ready."""
    time.sleep(_IDLE_S)
    return running.usage().resident_bytes / 1e6


def loaded(running: Running, effort: Effort) -> float:
    """MB of all processes together, at most, while librdkafka writes as fast as it can, and then reads."""
    ends = time.perf_counter() + min(_LOADED_S, 4 * effort.seconds)
    replicas = len(running.brokers)
    with running.watched() as peak:
        while time.perf_counter() < ends:
            with topic(running, BASE.partitions, replicas=replicas) as name:
                written, _rate = write(running, name, effort.seconds, BASE)
                # A warm topic may have lost what was written first.
                count = min(written // 2, _CONSUMED_MESSAGES)
                librdkafka.consumed_in_group_per_second(
                    name, count, bootstrap_servers=running.bootstrap, group_id="versus"
                )
    return peak.resident_bytes / 1e6


def _rows(brokers: int) -> tuple[Row, ...]:
    what = "one broker" if brokers == 1 else f"{brokers} brokers"
    common = {"section": SECTION, "brokers": brokers, "lower_is_better": True, "fresh": True}
    # The start and the memory of a broker as it is, without the settings of warm topics.
    plain = common | {"settings": ()}
    return (
        Row(f"start-{brokers}", f"{what}: start to ready", unit="s", measure=start, **plain),
        Row(f"memory-idle-{brokers}", f"{what}: memory, idle", unit="MB", measure=idle, rounds_max=2, **plain),
        Row(f"memory-load-{brokers}", f"{what}: memory, under load", unit="MB", measure=loaded, rounds_max=2, **common),
    )


START = (*_rows(1), *_rows(3))
