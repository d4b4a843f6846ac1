"""`python -m bench.pairs --before COMMIT [--pairs 60] [--set NAME=VALUE]`: is this tree slower than a commit before it?

With settings, which the broker of this tree alone gets, and HEAD as the commit: what do these settings cost?

Two brokers run side by side, one of each source, with the same Python and the same client. They take turns: a pair is
the same work on the one and then on the other, in an order that changes from pair to pair. What counts is the broker's
own CPU for a piece of work, which survives a noisy machine better than any rate. A process is a few percent faster or
slower by where its memory happens to lie, so both brokers are started anew a few times, and the pairs spread over those
starts. Judged is the median of the ratios of the pairs (after / before), with an interval that holds it with 90 %, from
the order of the ratios alone:

    passed         the interval lies below the bound (1.02)
    slower         it lies above
    not decided    it does not lie on one side: more pairs, or a quieter machine
"""

import argparse
import os
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from math import comb
from pathlib import Path
from typing import NamedTuple

from bench.blaster import answered_in_turns_per_second, answered_per_second, fetched_bytes_per_second
from bench.canned import fetch_request, produce_request, produce_response_bytes, records_in
from bench.coordinator import Connection, commit_request
from bench.subject import Subject, running
from tailrace.wire.apis.data import MetadataRequest
from tailrace.wire.frame import encode_request

BOUND = 1.02
ALONE = "a record alone, written and read"
CONFIDENCE = 0.9
_ROOT = Path(__file__).parents[1]
_TOPIC = "pairs"
_COMPACTED = "compacted"
_CONNECTIONS = 10
# In the answer to a Produce of one batch: behind size, correlation id, topics, name, partitions, index and error.
_BASE_OFFSET_AT = 4 + 4 + 4 + 2 + len(_TOPIC) + 4 + 4 + 2


class Verdict(NamedTuple):
    median: float
    low: float
    high: float
    bound: float = BOUND

    @property
    def text(self) -> str:
        if self.high < self.bound:
            return "passed"
        return "slower" if self.low > self.bound else "not decided"


def judge(ratios: Sequence[float], bound: float = BOUND) -> Verdict:
    """The median of paired ratios, and the interval between two of them that holds it with the wanted confidence."""
    ordered, count = sorted(ratios), len(ratios)
    tail, rank = 0.0, 0
    while rank < (count - 1) // 2:
        tail += comb(count, rank) / 2**count
        if 2 * tail > 1 - CONFIDENCE:
            break
        rank += 1
    # Below `rank` lie too few to be on the wrong side by chance; with few pairs that is all of them.
    outer = max(0, rank - 1)
    return Verdict(statistics.median(ordered), ordered[outer], ordered[count - 1 - outer], bound)


# ---- the work: each gives how much of it was done


def _small_produces(subject: Subject, seconds: float) -> float:
    request = produce_request(_TOPIC, records=1, value_bytes=100)
    return seconds * answered_per_second(subject.port, request, produce_response_bytes(_TOPIC), seconds)


def _general_produces(subject: Subject, seconds: float) -> float:
    """In a version that has no express lane."""
    request = produce_request(_TOPIC, records=1, value_bytes=100, version=6)
    with Connection(subject.port) as connection:
        response_bytes = len(connection.ask_raw(request))
    return seconds * answered_per_second(subject.port, request, response_bytes, seconds)


def _large_produces(subject: Subject, seconds: float) -> float:
    request = produce_request(_TOPIC, records=records_in(64_000, 1_000), value_bytes=1_000)
    return seconds * answered_per_second(subject.port, request, produce_response_bytes(_TOPIC), seconds)


def _compacted_produces(subject: Subject, seconds: float) -> float:
    """The broker has to look whether each record has a key."""
    request = produce_request(_COMPACTED, records=records_in(64_000, 1_000), value_bytes=1_000, key=b"a key")
    return seconds * answered_per_second(subject.port, request, produce_response_bytes(_COMPACTED), seconds)


def _compacted_small_produces(subject: Subject, seconds: float) -> float:
    request = produce_request(_COMPACTED, records=records_in(64_000, 100), value_bytes=100, key=b"a key")
    return seconds * answered_per_second(subject.port, request, produce_response_bytes(_COMPACTED), seconds)


def _fetches(subject: Subject, seconds: float) -> float:
    return seconds * fetched_bytes_per_second(subject.port, _TOPIC, 1 << 20, seconds)


def _metadata(subject: Subject, seconds: float) -> float:
    topic = MetadataRequest.MetadataRequestTopic(name=_TOPIC)
    request = MetadataRequest(topics=[topic], allow_auto_topic_creation=False)
    parts = encode_request(request.api_key, 9, 1, "bench", request)
    return _in_turns(subject, b"".join(bytes(part) for part in parts), seconds)


def _commits(subject: Subject, seconds: float) -> float:
    return _in_turns(subject, commit_request("pairs", _TOPIC, 0, 1), seconds)


def _alone(subject: Subject, seconds: float) -> float:
    """A record that all replicas have to have, then a Fetch of it, and nothing else meanwhile."""
    request = produce_request(_TOPIC, records=1, value_bytes=100, acks=-1)
    done, ends = 0, time.monotonic() + seconds
    with Connection(_leader_port(subject)) as connection:
        while time.monotonic() < ends:
            (offset,) = struct.unpack_from(">q", connection.ask_raw(request), _BASE_OFFSET_AT)
            connection.ask_raw(fetch_request(_TOPIC, offset=offset, max_bytes=1 << 20))
            done += 1
    return done


def _leader_port(subject: Subject) -> int:
    topic = MetadataRequest.MetadataRequestTopic(name=_TOPIC)
    with Connection(subject.port) as connection:
        answer = connection.ask(MetadataRequest(topics=[topic], allow_auto_topic_creation=False), 9)
    leader = answer.topics[0].partitions[0].leader_id
    (port,) = [each.port for each in answer.brokers if each.node_id == leader]
    return int(port)


def _in_turns(subject: Subject, request: bytes, seconds: float) -> float:
    with Connection(subject.port) as connection:
        response_bytes = len(connection.ask_raw(request))
    rate = answered_in_turns_per_second(subject.port, request, response_bytes, seconds, connections=_CONNECTIONS)
    return seconds * rate


WORK: dict[str, Callable[[Subject, float], float]] = {
    "produces of 100 B, pipelined": _small_produces,
    "the same, the general way": _general_produces,
    "produces of 64 KB, pipelined": _large_produces,
    "the same, to a compacted topic": _compacted_produces,
    "the same, of 100 B records": _compacted_small_produces,
    "fetches of 1 MB": _fetches,
    "metadata, 10 connections": _metadata,
    "offset commits, 10 connections": _commits,
    ALONE: _alone,
}


# ---- two sources


@contextmanager
def _source(commit: str) -> Iterator[Path]:
    """The source of a commit in a folder of its own."""
    with tempfile.TemporaryDirectory(prefix="tailrace-pairs-") as folder:
        archive = subprocess.run(["git", "archive", commit, "src"], cwd=_ROOT, check=True, capture_output=True)
        subprocess.run(["tar", "-x", "-C", folder], input=archive.stdout, check=True)
        yield Path(folder) / "src"


def _prepare(subject: Subject, replicas: int) -> None:
    subject.create_topic(_TOPIC, warm=True, replicas=replicas)
    subject.create_topic(_COMPACTED, warm=True, replicas=replicas, settings={"cleanup.policy": "compact,delete"})
    if replicas == 1:
        with Connection(subject.port) as connection:
            connection.find_coordinator("pairs")
            connection.commit("pairs", _TOPIC, 1)


def _cpu_s(subject: Subject) -> float:
    """To the nanosecond, of all threads of all nodes."""
    tasks = [task for process in subject.process_ids() for task in Path(f"/proc/{process}/task").iterdir()]
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def _cost(work: Callable[[Subject, float], float], subject: Subject, seconds: float) -> float:
    before = _cpu_s(subject)
    done = work(subject, seconds)
    return (_cpu_s(subject) - before) / done


def take_pairs(before: Subject, after: Subject, name: str, *, count: int, seconds: float) -> list[float]:
    work = WORK[name]
    for subject in (before, after):
        work(subject, seconds)  # Warm: what it has to import and to compile does not count.
    ratios = []
    for number in range(count):
        order = (before, after) if number % 2 == 0 else (after, before)
        costs = {subject: _cost(work, subject, seconds) for subject in order}
        ratios.append(costs[after] / costs[before])
    return ratios


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.pairs", description=__doc__.partition("\n")[0])
    parser.add_argument("--before", required=True, metavar="COMMIT", help="what this tree is compared with")
    parser.add_argument("--brokers", type=int, default=1, help="of each cluster; the topic has as many replicas (1)")
    parser.add_argument("--pairs", type=int, default=60)
    parser.add_argument("--starts", type=int, default=6, help="over how many starts of both brokers they spread (6)")
    parser.add_argument("--seconds", type=float, default=0.5, help="of one piece of work (0.5)")
    parser.add_argument("--only", nargs="+", choices=WORK, metavar="NAME")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="for the broker of this tree")
    parser.add_argument("--bound", type=float, default=BOUND, help=f"of the ratio ({BOUND})")
    options = parser.parse_args()
    # The others ask the first broker, which leads nothing for sure where there are several.
    names = options.only or (list(WORK) if options.brokers == 1 else [ALONE])
    if options.brokers > 1 and names != [ALONE]:
        parser.error(f"with several brokers there is only {ALONE!r}")
    settings = dict(each.split("=", 1) for each in options.set)
    load = os.getloadavg()[0]
    if load > 0.5:
        print(f"this machine is busy (load {load:.1f}): more will stay undecided", file=sys.stderr)
    pairs_of_start = max(1, options.pairs // options.starts)
    pairs = pairs_of_start * options.starts
    print(f"after / before, median of {pairs} pairs and its {CONFIDENCE:.0%} interval; passed below {options.bound}")
    ratios: dict[str, list[float]] = {name: [] for name in names}
    with _source(options.before) as source_before:
        for _start in range(options.starts):
            with (
                running(options.brokers, source=source_before) as before,
                running(options.brokers, source=_ROOT / "src", settings=settings) as after,
            ):
                for subject in (before, after):
                    _prepare(subject, options.brokers)
                for name in names:
                    taken = take_pairs(before, after, name, count=pairs_of_start, seconds=options.seconds)
                    ratios[name] += taken
    verdicts = {name: judge(taken, options.bound) for name, taken in ratios.items()}
    for name, verdict in verdicts.items():
        told = f"{verdict.median:.3f} ({verdict.low:.3f} to {verdict.high:.3f})"
        print(f"{name:<34} {told:<26} {verdict.text}", flush=True)
    return int(any(verdict.text == "slower" for verdict in verdicts.values()))


if __name__ == "__main__":
    sys.exit(main())
