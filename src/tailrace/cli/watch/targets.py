"""Which nodes are watched, and how to get in: what `alerts` and `top` share."""

from __future__ import annotations

import argparse
import os

from tailrace.apps.scrape import Scraper
from tailrace.client.security.settings import PLAINTEXT, Security

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
        "--user", default="", metavar="NAME", help="where nodes ask for a login; TAILRACE_PASSWORD has the password"
    )
    parser.add_argument("--ca", default="", metavar="FILE", help="PEM of authorities to trust, for https")


def targets_of(options: argparse.Namespace) -> list[str]:
    from tailrace.real.metrics.targets import TARGETS_FILE

    words = list(options.target)
    if options.data:
        words.append(os.path.join(options.data, TARGETS_FILE))
    return words or [DEFAULT_TARGET]


def scraper_of(options: argparse.Namespace, security: Security = PLAINTEXT) -> Scraper:
    """Without --user it is the user of `security`, who has a password for the brokers."""
    user, password = options.user, os.environ.get("TAILRACE_PASSWORD", "")
    if not user and security.sasl is not None and not security.sasl.is_by_delegation_token:
        user, password = security.sasl.username, security.sasl.password
    return Scraper(
        timeout_seconds=_TIMEOUT_SECONDS,
        user=f"{user}:{password}" if user else "",
        authorities=options.ca,
    )
