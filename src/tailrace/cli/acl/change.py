"""`tailrace acl add` and `remove`."""

from __future__ import annotations

import argparse
from collections.abc import Iterator

from tailrace.cli.acl.look import filters, show
from tailrace.cli.acl.words import named_resources
from tailrace.cli.output import count_text, note
from tailrace.client.acls import AclAdmin, AclFilter
from tailrace.client.metadata import Cluster
from tailrace.controller.security.authorizer import Resource
from tailrace.model.acls import WILDCARD, Acl, Kind, Operation, PatternType, Permission

_ON_TOPICS_TO_WRITE = (Operation.WRITE, Operation.DESCRIBE, Operation.CREATE)
_ON_IDS = (Operation.WRITE, Operation.DESCRIBE)
# What somebody needs of each kind of resource to do a whole job, and of which kinds some must be named for it.
_BUNDLES: dict[str, dict[Kind, tuple[Operation, ...]]] = {
    "producer": {Kind.TOPIC: _ON_TOPICS_TO_WRITE, Kind.TRANSACTIONAL_ID: _ON_IDS},
    "consumer": {Kind.TOPIC: (Operation.READ, Operation.DESCRIBE), Kind.GROUP: (Operation.READ,)},
    "transactional": {
        Kind.TOPIC: _ON_TOPICS_TO_WRITE,
        Kind.TRANSACTIONAL_ID: _ON_IDS,
        Kind.GROUP: (Operation.READ,),
    },
}
_NEEDED = {
    "producer": (Kind.TOPIC,),
    "consumer": (Kind.TOPIC, Kind.GROUP),
    "transactional": (Kind.TOPIC, Kind.TRANSACTIONAL_ID),
}


async def add_acls(cluster: Cluster, options: argparse.Namespace) -> int:
    resources = list(named_resources(options))
    bundle = next((name for name in _BUNDLES if getattr(options, name)), None)
    _check_resources(options, resources, bundle)
    pattern_type = PatternType.PREFIXED if options.prefixed else PatternType.LITERAL
    permission = Permission.DENY if options.deny else Permission.ALLOW
    acls = [
        # The cluster has one name, and nothing begins with it.
        Acl(
            kind,
            name,
            PatternType.LITERAL if kind is Kind.CLUSTER else pattern_type,
            principal,
            host,
            operation,
            permission,
        )
        for principal in options.principals
        for host in options.host or [WILDCARD]
        for (kind, name), operation in _rights(options, resources, bundle)
    ]
    await AclAdmin(cluster).create(acls)
    show(acls, is_json=options.json)
    return 0


def _check_resources(options: argparse.Namespace, resources: list[Resource], bundle: str | None) -> None:
    kinds = {resource.kind for resource in resources}
    for kind in _NEEDED.get(bundle or "", ()):
        if kind not in kinds:
            options.refuse(f"--{bundle} needs --{kind.name.lower().replace('_', '-')} NAME")
    if bundle is not None and not kinds.issubset(_BUNDLES[bundle]):
        options.refuse(f"--{bundle} is about topics, groups and transactional ids; use --operation for the rest")
    if not kinds:
        options.refuse("name a resource: --topic, --group, --transactional-id, --delegation-token or --cluster")


def _rights(
    options: argparse.Namespace, resources: list[Resource], bundle: str | None
) -> Iterator[tuple[Resource, Operation]]:
    for resource in resources:
        operations = options.operation if bundle is None else _BUNDLES[bundle][resource.kind]
        for operation in operations:
            yield resource, operation


async def remove_acls(cluster: Cluster, options: argparse.Namespace) -> int:
    wanted = list(filters(options))
    if wanted == [AclFilter()] and not options.all:
        options.refuse("say which ACLs: --principal, --topic, ..., or --all")
    admin = AclAdmin(cluster)
    removed = [acl for each in wanted for acl in await admin.delete(each)]
    show(removed, is_json=options.json)
    note(f"removed {count_text(len(removed), 'ACL')}")
    return 0
