"""`tailrace acl list` and `explain`.

What `explain` says is decided here, by the same rules as in a broker, from the ACLs that are about the resource. Who
is a super user is a setting of the brokers: it is asked for, and if it is not told (as by Apache Kafka), that is said.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence

from tailrace.cli.acl.words import named_resources
from tailrace.cli.output import note, print_json, print_rows
from tailrace.client.acls import AclAdmin, AclFilter
from tailrace.client.admin import Admin
from tailrace.client.metadata import Cluster
from tailrace.controller.security.authorizer import Authorizer
from tailrace.model.acls import ANY, MATCH, Acl, PatternType
from tailrace.model.config import split_principals
from tailrace.model.errors import KafkaError
from tailrace.model.ids import Uuid

_RESOURCE_BROKER = 4


async def list_acls(cluster: Cluster, options: argparse.Namespace) -> int:
    admin = AclAdmin(cluster)
    found = {acl: None for each in filters(options) for acl in await admin.find(each)}
    show(list(found), is_json=options.json)
    return 0


def filters(options: argparse.Namespace) -> Iterator[AclFilter]:
    """One for each resource that is named, or one for all of them."""
    pattern_type = PatternType.PREFIXED if options.prefixed else MATCH if options.match else ANY
    wanted = AclFilter(pattern_type=pattern_type, principal=options.principal, operation=options.operation)
    resources = list(named_resources(options))
    if not resources:
        yield wanted
    for kind, name in resources:
        yield wanted._replace(kind=kind, name=name)


def show(acls: Sequence[Acl], *, is_json: bool) -> None:
    if is_json:
        for acl in acls:
            print_json(as_json(acl))
        return
    print_rows(
        ("principal", "permission", "operation", "resource", "pattern", "name", "host"),
        [
            (
                acl.principal,
                acl.permission.name,
                acl.operation.name,
                acl.kind.name,
                acl.pattern_type.name,
                acl.name,
                acl.host,
            )
            for acl in acls
        ],
    )


def as_json(acl: Acl) -> dict[str, str]:
    return {
        "principal": acl.principal,
        "permission": acl.permission.name,
        "operation": acl.operation.name,
        "resource": acl.kind.name,
        "pattern": acl.pattern_type.name,
        "name": acl.name,
        "host": acl.host,
    }


async def explain_acls(cluster: Cluster, options: argparse.Namespace) -> int:
    kind, name = options.resource
    found = await AclAdmin(cluster).find(AclFilter(kind=kind, name=name, pattern_type=MATCH))
    settings = await _settings(cluster)
    authorizer = Authorizer(
        split_principals(settings.get("super.users") or ""),
        allows_without_acl=settings.get("allow.everyone.if.no.acl.found") == "true",
    )
    authorizer.index.follow({Uuid(number.to_bytes(16, "big")): acl for number, acl in enumerate(found)})
    decision = authorizer.decide(options.principal, options.host, options.operation, options.resource)
    if options.json:
        rule = as_json(decision.rule) if isinstance(decision.rule, Acl) else decision.rule.value
        print_json({"allowed": decision.is_allowed, "rule": rule, "super_users_known": "super.users" in settings})
    else:
        print(f"{'allowed' if decision.is_allowed else 'denied'}: {decision.rule_text}")
        if "super.users" not in settings:
            note("the broker does not tell who its super users are, who may do everything")
    return 0 if decision.is_allowed else 1


async def _settings(cluster: Cluster) -> dict[str, str | None]:
    """Those of a broker that decide besides ACLs, as far as it tells."""
    try:
        await cluster.refresh([])
        entries = await Admin(cluster).configs_of(_RESOURCE_BROKER, str(next(iter(cluster.brokers))))
    except KafkaError:
        return {}
    return {entry.name: entry.value for entry in entries}
