"""`tailrace mirror reverse` and `reopen`: the old source becomes the mirror, or takes records again.

Both steps of a reverse (a link there, topics that become mirrors by it) can be done again: whoever was interrupted
gives the command once more.
"""

from __future__ import annotations

import argparse

from tailrace.cli import CommandError
from tailrace.cli.output import count_text, note
from tailrace.client.metadata import Cluster, parse_bootstrap
from tailrace.client.mirrors.admin import DescribedLink, MirrorAdmin, can_mirror
from tailrace.model.errors import KafkaError
from tailrace.real.cluster import open_cluster
from tailrace.wire.apis.mirrors import ReverseMirrorRequest

# What follows in the other direction as it did in this one.
_KEPT = ("groups", "groups.exclude", "acls", "configs", "sync.interval.ms", "promote.quiet.ms", "max.bytes.per.second")
_OPEN = "open"


async def reverse(cluster: Cluster, options: argparse.Namespace) -> int:
    link = (await MirrorAdmin(cluster).describe(options.name))[options.name]
    topics = await _topics(cluster, link, options.topics)
    if not topics:
        note(f"nothing was promoted or failed over by the link {options.name}: there is nothing to reverse")
        return 0
    source = open_cluster(parse_bootstrap(link.settings["bootstrap.servers"]), security=options.source_config)
    try:
        await _reverse_at(source, cluster, link, topics, options)
    except KafkaError as error:
        raise KafkaError(error.code, f"the source: {error.message}") from None
    finally:
        source.close()
    return 0


async def _topics(cluster: Cluster, link: DescribedLink, names: list[str]) -> list[ReverseMirrorRequest.Topic]:
    unknown = [name for name in names if name not in link.topics or link.topics[name].state != _OPEN]
    if unknown:
        raise CommandError(f"{unknown[0]} was not promoted or failed over by the link {link.name}")
    found = await cluster.refresh(None)
    return [
        ReverseMirrorRequest.Topic(
            name=topic.source_topic,
            source_topic=name,
            source_topic_id=found[name].id,
            leader_epochs=[found[name].partitions[index].leader_epoch for index in sorted(found[name].partitions)],
        )
        for name, topic in sorted(link.topics.items())
        if topic.state == _OPEN and name in found and (not names or name in names)
    ]


async def _reverse_at(
    source: Cluster,
    cluster: Cluster,
    link: DescribedLink,
    topics: list[ReverseMirrorRequest.Topic],
    options: argparse.Namespace,
) -> None:
    await source.refresh([])
    if source.cluster_id != link.source_cluster_id:
        raise CommandError(
            f"at {link.settings['bootstrap.servers']} is the cluster {source.cluster_id}, but the link {link.name} is "
            f"of {link.source_cluster_id}"
        )
    if not await can_mirror(await source.any_connection()):
        raise CommandError("the source is not Tailrace: it cannot become a mirror. Make a link at another cluster")
    there = MirrorAdmin(source)
    name = await _ensure_link(there, cluster, link, topics, options)
    verb = "would become" if options.dry_run else "become"
    if options.dry_run and name not in await there.describe():
        note(f"{count_text(len(topics), 'topic')} of the source {verb} mirrors of those here, by a new link {name}")
        return
    changed = await there.reverse(name, topics, validate_only=options.dry_run)
    note(f"{count_text(len(changed), 'topic')} of the source {verb} mirrors of those here, by the link {name} there")
    note("what only the source has is cut there, and saved to NAME.cut first")


async def _ensure_link(
    there: MirrorAdmin,
    cluster: Cluster,
    link: DescribedLink,
    topics: list[ReverseMirrorRequest.Topic],
    options: argparse.Namespace,
) -> str:
    """Its name."""
    name = options.reverse_name or f"{link.name}-reversed"
    brokers = [cluster.brokers[node_id] for node_id in sorted(cluster.brokers)]
    settings = {key: link.settings[key] for key in _KEPT if key in link.settings}
    settings["bootstrap.servers"] = options.here or ",".join(map(str, brokers))
    settings["topics"] = ",".join(topic.source_topic for topic in topics)
    known = (await there.describe()).get(name)
    if known is not None and known.source_cluster_id == cluster.cluster_id:
        return name  # It was begun already.
    assert cluster.cluster_id is not None, "this cluster was asked"
    await there.create(name, cluster.cluster_id, settings, validate_only=options.dry_run)
    return name


async def reopen(cluster: Cluster, options: argparse.Namespace) -> int:
    admin = MirrorAdmin(cluster)
    closed = await admin.closed()
    missing = [name for name in options.topics if name not in closed]
    if missing:
        raise CommandError(f"{missing[0]} was not handed over to another cluster: it takes records, or is a mirror")
    for cluster_id in sorted({closed[name] for name in options.topics}):
        await admin.reopen(cluster_id, [name for name in options.topics if closed[name] == cluster_id])
    note(f"{count_text(len(options.topics), 'topic')} can be written to here again")
    return 0
