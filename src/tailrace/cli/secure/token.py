"""`tailrace token create|list|renew|expire`: delegation tokens (KIP-48), by which programs log in as somebody without
that somebody's password, and for a while only. Works against any Kafka.

A token's password, its HMAC, is shown once, when it is made, or goes to a file. Later a token is named by its id: who
may renew or expire it may also ask the broker for the password, so that nobody has to type it.
"""

from __future__ import annotations

import argparse
from datetime import UTC, datetime
from typing import Any

from tailrace.cli import Actions, CommandError
from tailrace.cli.output import note, print_json, print_rows
from tailrace.cli.plan.units import parse_duration
from tailrace.cli.session import Work, add_client_work
from tailrace.client.metadata import Cluster
from tailrace.client.security.tokens import AS_THE_BROKER_SAYS, AT_ONCE, Token, TokenAdmin
from tailrace.model.security import Principal, parse_principal

DESCRIPTION = "Create, list, renew and expire delegation tokens."
EXAMPLES = """\
examples:
  tailrace token create --renewer spark                 prints id and password, once
  tailrace token create --login-file token.properties   writes them as sasl.jaas.config, for its owner's eyes
  tailrace token create --owner alice --max-life 12h    for somebody else, by CREATE_TOKENS on that user
  tailrace token list --json
  tailrace token renew DIF4KIcvRDKVkPtR6xnIYQ --period 6h
  tailrace token expire DIF4KIcvRDKVkPtR6xnIYQ
"""
_LOGIN = (
    "sasl.mechanism=SCRAM-SHA-512\n"
    "sasl.jaas.config=org.apache.kafka.common.security.scram.ScramLoginModule required "
    'username="{id}" password="{password}" tokenauth="true";\n'
)


def register(parser: argparse.ArgumentParser) -> None:
    actions = Actions(parser)
    create = _add_action(actions, "create", _create, "create a token", "create --renewer spark")
    create.add_argument("--owner", type=_principal, metavar="USER", help="whose it is (default: who asks)")
    create.add_argument("--renewer", type=_principal, metavar="USER", action="append", default=[], help="who may renew")
    create.add_argument("--max-life", type=_milliseconds, metavar="TIME", help="such as 12h or 7d, in all")
    create.add_argument("--login-file", metavar="FILE", help="write the login to a file of properties, do not print it")
    listing = _add_action(actions, "list", _list, "list the tokens that you may see", "list --json")
    listing.add_argument("--owner", type=_principal, metavar="USER", action="append", help="only those of a user")
    renew = _add_action(actions, "renew", _renew, "let a token live longer", "renew ID --period 6h")
    renew.add_argument("id")
    renew.add_argument("--period", type=_milliseconds, metavar="TIME", help="from now (default: what the broker has)")
    expire = _add_action(actions, "expire", _expire, "end a token", "expire ID")
    expire.add_argument("id")
    expire.add_argument("--after", type=_milliseconds, metavar="TIME", help="from now (default: at once)")


def _add_action(actions: Actions, name: str, work: Work, help_text: str, example: str) -> argparse.ArgumentParser:
    parser = actions.add(name, help_text, example)
    parser.add_argument("--json", action="store_true", help="one line of JSON")
    add_client_work(parser, work)
    return parser


def _principal(text: str) -> Principal:
    try:
        return parse_principal(text) if ":" in text else Principal("User", text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _milliseconds(text: str) -> int:
    return int(parse_duration(text) * 1000)


async def _create(cluster: Cluster, options: argparse.Namespace) -> int:
    max_ms = AS_THE_BROKER_SAYS if options.max_life is None else options.max_life
    token = await TokenAdmin(cluster).create(owner=options.owner, renewers=options.renewer, max_ms=max_ms)
    password = token.password
    if options.login_file is not None:
        _write_login(options.login_file, token)
    if options.json:
        print_json(_facts(token) | ({} if options.login_file is not None else {"password": password}))
    elif options.login_file is None:
        print_rows(("token", "password"), [(token.id, password)])
    else:
        print(token.id)
    note(f"whoever has it logs in as {token.owner}, until {_time(token.expiry_ms)} if it is not renewed")
    return 0


def _write_login(path: str, token: Token) -> None:
    from tailrace.cli.secure.authority import write_secret

    try:
        write_secret(path, _LOGIN.format(id=token.id, password=token.password).encode())
    except CommandError as error:
        raise CommandError(f"{error}; tailrace token expire {token.id} ends the token") from None


async def _list(cluster: Cluster, options: argparse.Namespace) -> int:
    tokens = await TokenAdmin(cluster).tokens(options.owner)
    if options.json:
        print_json([_facts(token) for token in tokens])
        return 0
    print_rows(
        ("token", "owner", "requester", "renewers", "expires", "ends"),
        [
            (each.id, each.owner, each.requester, each.renewers or None, _time(each.expiry_ms), _time(each.max_ms))
            for each in tokens
        ],
    )
    return 0


async def _renew(cluster: Cluster, options: argparse.Namespace) -> int:
    admin = TokenAdmin(cluster)
    token = await _find(admin, options.id)
    expiry_ms = await admin.renew(token.hmac, AS_THE_BROKER_SAYS if options.period is None else options.period)
    _tell(options, token, expiry_ms, f"{token.id} may be used until {_time(expiry_ms)}")
    return 0


async def _expire(cluster: Cluster, options: argparse.Namespace) -> int:
    admin = TokenAdmin(cluster)
    token = await _find(admin, options.id)
    expiry_ms = await admin.expire(token.hmac, AT_ONCE if options.after is None else options.after)
    told = (
        f"{token.id} ends at {_time(expiry_ms)}; connections that were made by it live on for as long as it would have"
    )
    _tell(options, token, expiry_ms, told)
    return 0


async def _find(admin: TokenAdmin, token_id: str) -> Token:
    for token in await admin.tokens():
        if token.id == token_id:
            return token
    raise CommandError(f"there is no token {token_id}, or none that you may see: tailrace token list")


def _tell(options: argparse.Namespace, token: Token, expiry_ms: int, text: str) -> None:
    if options.json:
        print_json(_facts(token._replace(expiry_ms=expiry_ms)))
    note(text)


def _facts(token: Token) -> dict[str, Any]:
    return {
        "token": token.id,
        "owner": str(token.owner),
        "requester": str(token.requester),
        "renewers": [str(renewer) for renewer in token.renewers],
        "issued_ms": token.issue_ms,
        "expires_ms": token.expiry_ms,
        "ends_ms": token.max_ms,
    }


def _time(timestamp_ms: int) -> str:
    return datetime.fromtimestamp(timestamp_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
