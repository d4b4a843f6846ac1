"""`tailrace mirror promote --fence-source`: nobody but super users writes to the source's topics any more.

For a source that is another Kafka, which a promote cannot close: an ACL denies WRITE to everybody. Super users pass it,
as any ACL. A source without an authorizer refuses it.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable

from tailrace.cli.output import count_text, note
from tailrace.client.acls import AclAdmin, AclFilter
from tailrace.client.metadata import parse_bootstrap
from tailrace.client.mirrors.admin import DescribedLink
from tailrace.model.acls import ANY_PRINCIPAL, WILDCARD, Acl, Kind, Operation, PatternType, Permission
from tailrace.model.errors import KafkaError
from tailrace.real.cluster import open_cluster


async def fence_source(link: DescribedLink, topics: Iterable[str], options: argparse.Namespace) -> None:
    """Or, where a promote is taken back, lets them write again. By the names of topics here."""
    acls = [_denial(link.topics[name].source_topic) for name in topics]
    source = open_cluster(parse_bootstrap(link.settings["bootstrap.servers"]), security=options.source_config)
    try:
        admin = AclAdmin(source)
        if not options.cancel:
            await admin.create(acls)
        else:
            for acl in acls:
                await admin.delete(AclFilter(*acl))
    except KafkaError as error:
        raise KafkaError(error.code, f"the source: {error.message}") from None
    finally:
        source.close()
    done = "can be written to again" if options.cancel else "is denied to all but super users"
    note(f"WRITE on {count_text(len(acls), 'topic')} of the source {done}")


def _denial(topic: str) -> Acl:
    return Acl(Kind.TOPIC, topic, PatternType.LITERAL, ANY_PRINCIPAL, WILDCARD, Operation.WRITE, Permission.DENY)
