"""`tailrace certificate create|show|renew`: an authority of one's own, and what it signs. Works without a broker."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable

from tailrace.cli import Actions, CommandError
from tailrace.cli.output import note, print_json, print_rows
from tailrace.cli.secure import AUTHORITY

DESCRIPTION = "Make, show and renew certificates, signed by an authority of your own."
EXAMPLES = """\
examples:
  tailrace certificate create broker-1 --folder ./tls --name queue.example --name 10.0.0.7
  tailrace certificate create alice --folder ./tls       a client: its principal is User:CN=alice
  tailrace certificate show ./tls/broker-1.pem --json
  tailrace certificate renew broker-1 --folder ./tls     the same names, a new key and a new year

The first `create` in a folder makes the authority: authority.pem is what others trust, authority.key signs.
"""


def register(parser: argparse.ArgumentParser) -> None:
    actions = Actions(parser)
    create = _add(actions, "create", _create, "make a key and a certificate", "create broker-1 --name queue.example")
    create.add_argument("name", metavar="CERTIFICATE", help="the common name, and the name of the file")
    create.add_argument("--folder", default=".", help="where the authority is (default: here)")
    create.add_argument(
        "--name", action="append", default=[], dest="names", help="of a host, or an address; repeatable"
    )
    show = _add(actions, "show", _show, "tell whose a certificate is and until when", "show broker-1.pem")
    show.add_argument("file")
    renew = _add(actions, "renew", _renew, "make it anew with the names that it has", "renew broker-1")
    renew.add_argument("name", metavar="CERTIFICATE")
    renew.add_argument("--folder", default=".", help="where it and the authority are (default: here)")


def _add(
    actions: Actions, name: str, run: Callable[[argparse.Namespace], int], help_text: str, example: str
) -> argparse.ArgumentParser:
    parser = actions.add(name, help_text, example)
    parser.add_argument("--json", action="store_true", help="one line of JSON")
    parser.set_defaults(run=run)
    return parser


def _create(options: argparse.Namespace) -> int:
    from tailrace.cli.secure.authority import make_authority, make_certificate

    _check_name(options.name)
    if os.path.exists(f"{options.folder}/{options.name}.pem"):
        raise CommandError(f"{options.folder}/{options.name}.pem is there already: see `tailrace certificate renew`")
    make_authority(options.folder)
    path = make_certificate(options.folder, options.name, options.names)
    note(f"made {path}; whoever is to trust it needs {options.folder}/{AUTHORITY}.pem")
    return _tell(path, as_json=options.json)


def _renew(options: argparse.Namespace) -> int:
    from tailrace.cli.secure.authority import make_certificate, read_facts

    _check_name(options.name)
    facts = read_facts(f"{options.folder}/{options.name}.pem")
    return _tell(make_certificate(options.folder, options.name, facts.names), as_json=options.json)


def _show(options: argparse.Namespace) -> int:
    return _tell(options.file, as_json=options.json)


def _tell(path: str, *, as_json: bool) -> int:
    from tailrace.cli.secure.authority import WARNING_DAYS, read_facts

    facts = read_facts(path)
    told = {
        "file": path,
        "subject": facts.subject,
        "issuer": facts.issuer,
        "names": list(facts.names),
        "not_before": facts.not_before.isoformat(),
        "not_after": facts.not_after.isoformat(),
        "days_left": facts.days_left,
    }
    if facts.days_left < WARNING_DAYS:
        when = "has ended" if facts.days_left < 0 else f"ends in {facts.days_left} days"
        note(f"{path} {when}: have it renewed, or see `tailrace certificate renew`")
    if as_json:
        print_json(told)
    else:
        rows = [(name, ",".join(value) if isinstance(value, list) else value) for name, value in told.items()]
        print_rows(("", ""), rows)
    return 0


def _check_name(name: str) -> None:
    if not name or "/" in name or name == "authority":
        raise CommandError(f"{name!r} cannot be the name of a certificate's file")
