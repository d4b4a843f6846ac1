"""`tailrace health`: whether nodes are ready and their cluster is whole, by their own word; the exit code tells.

Asks /health of nodes: of all that `tailrace up` has listed in a data folder, or of an address. Exit codes: 0 all is
well, 1 something is not, 2 the command line is wrong.
"""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Mapping
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from tailrace.cli import CommandError
from tailrace.cli.output import print_json, print_rows
from tailrace.real.metrics.targets import read_targets

DESCRIPTION = "Ask nodes whether they are ready and their cluster is whole. The exit code is 1 if something is not."
EXAMPLES = """\
examples:
  tailrace health --data ./data                    all nodes of `tailrace up --data ./data`
  tailrace health http://127.0.0.1:9404            one node, by its metrics listener
  tailrace health http://127.0.0.1:9404 --check ready
"""

CHECKS = ("live", "ready", "cluster")


class Checked(NamedTuple):
    node: str
    check: str
    is_good: bool
    reason: str
    facts: dict[str, Any]


def register(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("urls", nargs="*", metavar="URL", help="the metrics listener of a node")
    parser.add_argument("--data", metavar="DIR", help="all nodes that `tailrace up` runs on this folder")
    parser.add_argument(
        "--check", action="append", default=[], choices=CHECKS, help="only this; repeatable (default: ready, cluster)"
    )
    parser.add_argument("--ca", metavar="FILE", help="authorities to trust, as PEM (default: those of the machine)")
    parser.add_argument("--timeout", type=float, default=5.0, metavar="SECONDS", help="for each answer (default: 5)")
    parser.add_argument("--json", action="store_true", help="print JSON lines")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    nodes = _nodes(options)
    checks = options.check or ["ready", "cluster"]
    trusted = options.ca or _own_authority(options.data)
    found = [_ask(url, name, check, options.timeout, trusted) for name, url in nodes.items() for check in checks]
    if options.json:
        for each in found:
            print_json({**each.facts, "node": each.node, "check": each.check, "reason": each.reason})
    else:
        rows = [(each.node, each.check, "pass" if each.is_good else "fail", each.reason or None) for each in found]
        print_rows(("node", "check", "status", "reason"), rows)
    return 0 if all(each.is_good for each in found) else 1


def _nodes(options: argparse.Namespace) -> Mapping[str, str]:
    if bool(options.urls) == bool(options.data):
        raise CommandError("say whom to ask: give --data DIR of a `tailrace up`, or the URL of a metrics listener")
    if options.data:
        try:
            return read_targets(options.data)
        except FileNotFoundError:
            raise CommandError(f"{options.data} has no list of nodes: no `tailrace up` was started there") from None
        except (OSError, ValueError, LookupError, TypeError) as error:
            raise CommandError(f"the list of nodes in {options.data} cannot be read: {error}") from None
    for url in options.urls:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.netloc:
            raise CommandError(f"{url} is no address of a metrics listener: write http://host:port")
    return {url: url for url in options.urls}


def _own_authority(folder: str | None) -> str | None:
    """That of `tailrace up --secure`."""
    path = f"{folder}/security/authority.pem"
    return path if folder and os.path.exists(path) else None


def _connect(url: str, timeout_s: float, trusted: str | None) -> HTTPConnection:
    """Raises OSError if the file of authorities cannot be read."""
    parts = urlsplit(url)
    if parts.scheme == "http":
        return HTTPConnection(parts.netloc, timeout=timeout_s)
    import ssl

    return HTTPSConnection(parts.netloc, timeout=timeout_s, context=ssl.create_default_context(cafile=trusted))


def _ask(url: str, name: str, check: str, timeout_s: float, trusted: str | None) -> Checked:
    try:
        connection = _connect(url, timeout_s, trusted)
    except OSError as error:
        raise CommandError(f"{trusted} cannot be read as authorities: {error}") from None
    try:
        connection.request("GET", f"/health/{check}")
        answer = connection.getresponse()
        facts = json.loads(answer.read())
        return Checked(name, check, answer.status == 200, str(facts["reason"]), facts)
    except (OSError, HTTPException) as error:
        return _failed(name, check, f"no answer: {error}")
    except (ValueError, LookupError, TypeError):
        return _failed(name, check, "that is no metrics listener of a node")
    finally:
        connection.close()


def _failed(name: str, check: str, reason: str) -> Checked:
    return Checked(name, check, False, reason, {"status": "fail"})
