"""`tailrace quota set|list|remove`: how much clients may take, by user, by client id or by address."""

from __future__ import annotations

import argparse

from tailrace.cli import Actions, CommandError
from tailrace.cli.output import note, print_json, print_rows
from tailrace.cli.session import Work, add_client_work, key_and_value
from tailrace.client.metadata import Cluster
from tailrace.client.security.quotas import QuotaAdmin, SetQuotas
from tailrace.model.quotas import (
    CLIENT_ID,
    CLIENT_KEYS,
    ENTITY_TYPES,
    IP,
    IP_KEYS,
    USER,
    QuotaEntity,
    describe_entity,
    quota_entity,
)

DESCRIPTION = "Set, list and remove quotas: how much clients may take, by user, by client id or by address."
EXAMPLES = f"""\
examples:
  tailrace quota set --user alice --set producer_byte_rate=10485760 --set consumer_byte_rate=20971520
  tailrace quota set --user-default --set request_percentage=50
  tailrace quota set --ip 10.0.0.7 --set connection_creation_rate=20
  tailrace quota list
  tailrace quota remove --user alice --key producer_byte_rate

Keys for users and client ids: {", ".join(CLIENT_KEYS)}.
For addresses: {", ".join(IP_KEYS)}.
"""


def register(parser: argparse.ArgumentParser) -> None:
    actions = Actions(parser)
    setting = _add_action(
        actions, "set", _set, "set quotas of one entity", "set --user alice --set producer_byte_rate=10485760"
    )
    setting.add_argument(
        "--set",
        type=key_and_value,
        action="append",
        required=True,
        metavar="KEY=VALUE",
        dest="values",
        help="bytes a second, percent of the broker's loop, partitions or connections a second; repeatable",
    )
    _add_action(actions, "list", _list, "list quotas; with a name those of it alone", "list --user alice")
    removal = _add_action(
        actions, "remove", _remove, "remove quotas of one entity", "remove --user alice --key producer_byte_rate"
    )
    removal.add_argument(
        "--key", action="append", default=[], metavar="KEY", help="only this one (default: all); repeatable"
    )


def _add_action(actions: Actions, name: str, work: Work, help_text: str, example: str) -> argparse.ArgumentParser:
    parser = actions.add(name, help_text, example)
    add_client_work(parser, work)
    for kind, what in ((USER, "user"), (CLIENT_ID, "client.id"), (IP, "address")):
        either = parser.add_mutually_exclusive_group()
        either.add_argument(f"--{kind}", metavar="NAME", help=f"the {what}")
        either.add_argument(f"--{kind}-default", action="store_true", help=f"each {what} that has no quota of its own")
    parser.add_argument("--json", action="store_true", help="print JSON lines")
    return parser


def _entity(options: argparse.Namespace) -> QuotaEntity:
    named: dict[str, str | None] = {}
    for kind in ENTITY_TYPES:
        attribute = kind.replace("-", "_")
        if getattr(options, f"{attribute}_default"):
            named[kind] = None
        elif getattr(options, attribute) is not None:
            named[kind] = getattr(options, attribute)
    return quota_entity(named.items())


def _named_entity(options: argparse.Namespace) -> QuotaEntity:
    entity = _entity(options)
    if not entity:
        options.refuse("say for whom: --user, --client-id, --ip, or one of them with -default")
    return entity


async def _set(cluster: Cluster, options: argparse.Namespace) -> int:
    entity = _named_entity(options)
    values = {key: _number(key, text) for key, text in options.values}
    admin = QuotaAdmin(cluster)
    await admin.alter(entity, values)
    _tell(options, entity, f"set {', '.join(f'{key}={value:.15g}' for key, value in values.items())}", **values)
    return 0


async def _list(cluster: Cluster, options: argparse.Namespace) -> int:
    found = await QuotaAdmin(cluster).quotas(_entity(options))
    if options.json:
        for each in found:
            print_json({"entity": dict(each.entity), "quotas": dict(each.values)})
    else:
        print_rows((*ENTITY_TYPES, "key", "value"), [row for each in found for row in _rows(each)])
    return 0


async def _remove(cluster: Cluster, options: argparse.Namespace) -> int:
    entity = _named_entity(options)
    admin = QuotaAdmin(cluster)
    values = {key: 0.0 for each in await admin.quotas(entity, is_strict=True) for key in each.values}
    missing = sorted(set(options.key) - values.keys())
    if missing or not values:
        what = ", ".join(missing) or "quota"
        raise CommandError(f"There is no {what} for {describe_entity(entity)}. See: tailrace quota list")
    keys = options.key or list(values)
    await admin.alter(entity, dict.fromkeys(keys))
    _tell(options, entity, f"removed {', '.join(keys)}", **dict.fromkeys(keys))
    return 0


def _number(key: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise CommandError(f"{key}={text} is not a number, such as {key}=1048576") from None


def _rows(each: SetQuotas) -> list[tuple[object, ...]]:
    names = dict(each.entity)
    shown = [(names[kind] or "<default>") if kind in names else None for kind in ENTITY_TYPES]
    return [(*shown, key, f"{value:.15g}") for key, value in each.values.items()]


def _tell(options: argparse.Namespace, entity: QuotaEntity, sentence: str, **values: float | None) -> None:
    if options.json:
        print_json({"entity": dict(entity), "quotas": values})
    else:
        note(f"{describe_entity(entity)}: {sentence}")
