"""The options of whatever moves replicas, and the runner that they make."""

from __future__ import annotations

import argparse
import asyncio
from base64 import b64encode
from collections.abc import Callable, Sequence

from tailrace.balance.plan.picture import Goals, Resource
from tailrace.balance.run.look import Limits
from tailrace.balance.run.metrics import Metrics
from tailrace.balance.run.runner import Pace, Runner
from tailrace.cli import CommandError
from tailrace.cli.output import note
from tailrace.cli.plan.units import parse_bandwidth
from tailrace.cli.session import positive_seconds
from tailrace.client.admin import Admin
from tailrace.client.metadata import Cluster
from tailrace.client.security.settings import Security

_PACE, _GOALS = Pace(), Goals()


def add_goal_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--spread",
        type=_percent,
        default=_GOALS.spread_max,
        metavar="PERCENT",
        help=f"how far from its share a broker may be (default: {_GOALS.spread_max * 100:.0f})",
    )
    parser.add_argument(
        "--disk-max",
        type=_percent,
        default=_GOALS.use_max[Resource.DISK],
        metavar="PERCENT",
        help=f"how full a broker's disks may be (default: {_GOALS.use_max[Resource.DISK] * 100:.0f})",
    )
    parser.add_argument(
        "--metrics",
        metavar="URL,...",
        help="where the nodes tell their metrics, such as http://127.0.0.1:9404, or the data folder of `tailrace up`: "
        "then network and loops are balanced too, and the balancer holds back when producers wait",
    )
    parser.add_argument(
        "--sample",
        type=positive_seconds,
        default=10.0,
        metavar="SECONDS",
        help="how long rates are measured (default: 10)",
    )
    parser.add_argument(
        "--p99-max",
        type=float,
        metavar="MS",
        help="how long a producer may wait, 99th percentile (default: 1.5 times as long as before)",
    )
    parser.add_argument(
        "--network",
        type=parse_bandwidth,
        metavar="SPEED",
        help="what a broker's network can carry, such as 10Gbit/s; at most 80 %% of it is used (default: no bound)",
    )


def add_pace_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--throttle",
        type=_bytes_a_second,
        default=_PACE.rate,
        metavar="SPEED",
        help=f"the most that a broker copies, each way (default: {_PACE.rate // 1_000_000}MB/s)",
    )
    parser.add_argument(
        "--at-once",
        type=int,
        default=_PACE.at_once,
        metavar="N",
        help=f"how many partitions move at one time (default: {_PACE.at_once})",
    )
    parser.add_argument(
        "--patience",
        type=positive_seconds,
        default=_PACE.patience_ms / 1000,
        metavar="SECONDS",
        help=f"how long a broker may be away before a move to it is taken back (default: {_PACE.patience_ms // 1000})",
    )
    parser.add_argument(
        "--wait",
        type=positive_seconds,
        default=_PACE.wait_ms / 1000,
        metavar="SECONDS",
        help=f"how long all of it may take; what moves then goes on moving (default: {_PACE.wait_ms // 1000})",
    )


def make_runner(
    cluster: Cluster,
    options: argparse.Namespace,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> Runner:
    metrics = None
    if options.metrics:
        nodes = _Nodes(_urls(options.metrics), options.command_config)
        metrics = Metrics(nodes.ask, cluster.ports.clock, sample_s=options.sample, p99_max_ms=options.p99_max)
    return Runner(
        Admin(cluster),
        goals=Goals({**_GOALS.use_max, Resource.DISK: options.disk_max}, options.spread),
        pace=Pace(
            at_once=max(1, options.at_once),
            rate=options.throttle,
            patience_ms=round(options.patience * 1000),
            wait_ms=round(options.wait * 1000),
        ),
        limits=Limits(options.network),
        tell=note,
        progress=progress,
        metrics=metrics,
    )


def _urls(text: str) -> list[str]:
    """Of a folder, where the nodes of a cluster on this machine are; controllers move no records."""
    if "://" in text:
        return [url.strip().removesuffix("/").removesuffix("/metrics") for url in text.split(",") if url.strip()]
    from tailrace.real.metrics.targets import TARGETS_FILE, read_targets

    try:
        return [url for name, url in read_targets(text).items() if not name.startswith("controller")]
    except OSError as error:
        raise CommandError(
            f"--metrics: {text} is neither a URL, such as http://127.0.0.1:9404, nor a folder with {TARGETS_FILE}: "
            f"{error.strerror}"
        ) from None


class _Nodes:
    """Asked with the login that the cluster is asked with. A node that does not answer is down, or busy, and the others
    tell enough; but it is told, or one that refuses us would leave the network and the loops out of account unseen."""

    def __init__(self, urls: Sequence[str], security: Security) -> None:
        self._urls = urls
        self._tls = security.tls
        self._headers: dict[str, str] = {}
        if security.sasl is not None and not security.sasl.is_by_delegation_token:
            user = f"{security.sasl.username}:{security.sasl.password}"
            self._headers["Authorization"] = "Basic " + b64encode(user.encode()).decode()
        self._problems: set[tuple[str, str]] = set()

    async def ask(self) -> list[str]:
        return list(await asyncio.gather(*(asyncio.to_thread(self._ask_one, url) for url in self._urls)))

    def _ask_one(self, url: str) -> str:
        from tailrace.model.ports import WebQuestion
        from tailrace.real.web import RealWeb

        question = WebQuestion(
            f"{url}/metrics", timeout_ms=5000, answer_max_bytes=64 << 20, headers=self._headers, tls=self._tls
        )
        try:
            return RealWeb().ask(question).decode("utf-8", "replace")
        except OSError as error:
            problem = (url, str(error))
            if problem not in self._problems:
                self._problems.add(problem)
                note(f"the metrics of {url} cannot be read, and what is going on there is left out: {error}")
            return ""


def _percent(text: str) -> float:
    try:
        value = float(text.removesuffix("%"))
    except ValueError:
        value = -1.0
    if not 0 < value <= 100:
        raise argparse.ArgumentTypeError(f"{text!r} is not a percentage above 0, such as 10")
    return value / 100


def _bytes_a_second(text: str) -> int:
    rate = round(parse_bandwidth(text))
    if rate < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no speed above 0, such as 10MB/s")
    return rate
