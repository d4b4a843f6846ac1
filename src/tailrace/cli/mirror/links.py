"""`tailrace mirror create`, `pause`, `resume` and `delete`."""

from __future__ import annotations

import argparse

from tailrace.cli.output import note
from tailrace.client.metadata import Cluster
from tailrace.client.mirrors.admin import MirrorAdmin
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.real.cluster import open_cluster

_OPTIONS = {
    "topics": "topics",
    "topics_exclude": "topics.exclude",
    "groups": "groups",
    "groups_exclude": "groups.exclude",
    "acls": "acls",
    "prefix": "topic.prefix",
    "start": "start",
}


async def create_link(cluster: Cluster, options: argparse.Namespace) -> int:
    settings = dict(options.settings)
    settings["bootstrap.servers"] = ",".join(str(address) for address in options.source)
    for option, name in _OPTIONS.items():
        value = getattr(options, option)
        if value is not None:
            settings[name] = value
    source_cluster_id = await _ask_source(options)
    admin = MirrorAdmin(cluster)
    await admin.create(options.name, source_cluster_id, settings, validate_only=options.dry_run)
    verb = "would be made" if options.dry_run else "is made"
    note(f"the link {options.name} to the cluster {source_cluster_id} {verb}")
    return 0


async def _ask_source(options: argparse.Namespace) -> str:
    """Who it is. It is asked from here, by whoever makes the link; brokers ask it by their own files."""
    source = open_cluster(options.source, security=options.source_config)
    try:
        await source.refresh([])
    except KafkaError as error:
        raise KafkaError(error.code, f"the source: {error.message}") from None
    finally:
        source.close()
    if not source.cluster_id:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "the source tells no cluster id: is it Kafka 2.1 or later?")
    return source.cluster_id


async def pause_link(cluster: Cluster, options: argparse.Namespace) -> int:
    await MirrorAdmin(cluster).alter(options.name, "pause")
    note(f"the link {options.name} is paused")
    return 0


async def resume_link(cluster: Cluster, options: argparse.Namespace) -> int:
    await MirrorAdmin(cluster).alter(options.name, "resume")
    note(f"the link {options.name} goes on")
    return 0


async def delete_link(cluster: Cluster, options: argparse.Namespace) -> int:
    await MirrorAdmin(cluster).alter(options.name, "delete", validate_only=options.dry_run)
    note(f"the link {options.name} {'would be' if options.dry_run else 'is'} deleted")
    return 0
