"""Which nodes are watched, and how to get in: what `alerts` and `top` share."""

from __future__ import annotations

import argparse
import os

from tailrace.apps.scrape import Scraper

# A node that is stuck must not keep the others from being judged.
_TIMEOUT_SECONDS = 3.0
DEFAULT_TARGET = "127.0.0.1:9404"


def add_target_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--target",
        action="append",
        default=[],
        metavar="HOST:PORT|FILE",
        help=f"metrics listener of a node, or a list of targets (.json); repeatable (default: {DEFAULT_TARGET})",
    )
    parser.add_argument(
        "--data",
        metavar="DIR",
        help="the data folder of `tailrace up`, which has a list of its nodes (metrics-targets.json)",
    )
    parser.add_argument(
        "--user", default="", metavar="NAME", help="where nodes ask for a login; TAILRACE_PASSWORD has it"
    )
    parser.add_argument("--ca", default="", metavar="FILE", help="PEM of authorities to trust, for https")


def targets_of(options: argparse.Namespace) -> list[str]:
    from tailrace.real.metrics.targets import TARGETS_FILE

    words = list(options.target)
    if options.data:
        words.append(os.path.join(options.data, TARGETS_FILE))
    return words or [DEFAULT_TARGET]


def scraper_of(options: argparse.Namespace) -> Scraper:
    password = os.environ.get("TAILRACE_PASSWORD", "")
    return Scraper(
        timeout_seconds=_TIMEOUT_SECONDS,
        user=f"{options.user}:{password}" if options.user else "",
        authorities=options.ca,
    )
