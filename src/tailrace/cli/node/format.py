"""`tailrace format`: makes a node's data folders its own, by writing whose they are into meta.properties.

A controller of a new quorum is told its voters here, once (`--standalone`, `--initial-controllers`, or the setting
controller.quorum.voters); from then on they are records of the metadata log, and change online. A node with both roles
that names no quorum, or none but itself, is one by itself. The short options are those of Kafka's kafka-storage.
"""

from __future__ import annotations

import argparse
import re
from typing import TYPE_CHECKING

from tailrace.cli import CommandError
from tailrace.cli.node.machine import PROCESSES_HELP, parse_processes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tailrace.cli.node.storage import Voter
    from tailrace.model.config import BrokerConfig, Endpoint
    from tailrace.wire.apis.stored_records import UserScramCredentialRecord

DESCRIPTION = "Prepare the data folders that a node's settings name. Data that is there is never touched."
EXAMPLES = """\
examples:
  tailrace format --config node.toml
  tailrace format -c server.properties
  tailrace format --config controller-1.toml --cluster-id pmUXq7nqTtK6M3yHDKm5HA --initial-controllers \\
    1001@one:9093:hjKUl1-jR0m0yStPSxGmGQ,1002@two:9093:WtdF3-4GSd21rKRN5psMrQ,1003@three:9093:1MXV3nVaRRWvcKcGCMhvXA
  tailrace format --config broker-1.toml --cluster-id pmUXq7nqTtK6M3yHDKm5HA
  tailrace format --config node.toml --processes 4      four brokers that share the machine, as `tailrace broker` starts
  tailrace format --config broker-1.toml --cluster-id pmUXq7nqTtK6M3yHDKm5HA --directory-id WtdF3-4GSd21rKRN5psMrQ

Each of the first controllers is formatted with the same list: node id @ host : port : id of its metadata folder, which
you choose (22 base64url characters each; `tailrace format --new-id` prints one). With controller.quorum.voters in the
settings there is no list: format each node with the same --cluster-id. A controller that has lost its disk is formatted
with --no-initial-controllers, and added again.
"""

_ID_PATTERN = "[A-Za-z0-9_-]{22}"
_VOTER_PATTERN = re.compile(rf"(\d+)@(.+):(\d+):({_ID_PATTERN})")


def register(parser: argparse.ArgumentParser) -> None:
    chosen = parser.add_mutually_exclusive_group(required=True)
    chosen.add_argument("-c", "--config", metavar="FILE", help="the node's settings, as for `tailrace broker`")
    chosen.add_argument("--new-id", action="store_true", help="print a new id, for a cluster or a folder; do no more")
    parser.add_argument("-t", "--cluster-id", metavar="ID", help="its cluster (default: cluster.id, or a new one)")
    voters = parser.add_mutually_exclusive_group()
    voters.add_argument(
        "-s", "--standalone", action="store_true", help="this controller is the only voter of a new quorum"
    )
    voters.add_argument(
        "-I", "--initial-controllers", metavar="LIST", help="the voters of a new quorum, this one among them"
    )
    voters.add_argument(
        "-N", "--no-initial-controllers", action="store_true", help="this controller joins a quorum that is there"
    )
    parser.add_argument(
        "-S",
        "--add-scram",
        action="append",
        default=[],
        metavar="CREDENTIAL",
        help="a credential that a new cluster begins with: SCRAM-SHA-512=[name=alice,password-file=FILE], - for "
        "standard input; repeatable, and the same for all controllers",
    )
    parser.add_argument("--processes", default="1", metavar="N", help=PROCESSES_HELP)
    parser.add_argument(
        "--directory-id",
        metavar="ID",
        help="restore the lost meta.properties of a folder that holds data: its id, which the metadata names "
        "(needs --cluster-id)",
    )
    parser.add_argument(
        "-g", "--ignore-formatted", action="store_true", help="leave folders that are formatted already as they are"
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from tailrace.cli.node.machine.unit import configs_of
    from tailrace.cli.node.settings_file import read_given
    from tailrace.cli.node.storage import (
        folders_of,
        format_folder,
        new_uuid_text,
        store_credentials,
        store_voters,
        stored_cluster_id,
        unformatted_folders,
    )

    if options.new_id:
        print(new_uuid_text())
        return 0
    given, _ = read_given(options.config)
    configs = configs_of(given, parse_processes(options.processes))
    if options.directory_id is not None:
        return _restore(options, configs)
    # The first alone may be a controller.
    config = configs[0]
    new = [(each, folder) for each in configs for folder in unformatted_folders(each)]
    formatted = sorted({folder for each in configs for folder in folders_of(each)} - {folder for _, folder in new})
    if formatted and not options.ignore_formatted:
        raise CommandError(f"{formatted[0]} is formatted already; pass --ignore-formatted to format only new folders")
    cluster_id = _decide_cluster_id(options, config, stored_cluster_id(formatted)) or new_uuid_text()
    own_id = new_uuid_text()
    voters = _decide_voters(options, config, own_id, cluster_id)
    if config.remote_log_storage_system_enable and "broker" in config.process_roles:
        _check_store(config, cluster_id)
    credentials = _read_credentials(options, config)
    if voters:
        own_id = next(_text(voter) for voter in voters if voter.node_id == config.node_id)
    for each, folder in new:
        is_voter = bool(voters) and folder == config.metadata_folder
        if is_voter:
            store_voters(folder, voters)
        directory_id = own_id if is_voter else None
        if credentials and folder == config.metadata_folder:
            store_credentials(folder, credentials)
        format_folder(folder, cluster_id=cluster_id, node_id=each.node_id, directory_id=directory_id)
        print(f"formatted {folder} for node {each.node_id} of cluster {cluster_id}")
    return 0


def _check_store(config: BrokerConfig, cluster_id: str) -> None:
    """What cannot work is said now, and not by the first start."""
    import asyncio

    from tailrace.broker.tier.opening import check_settings
    from tailrace.model.errors import KafkaError
    from tailrace.real.ports import real_ports

    try:
        asyncio.run(check_settings(real_ports(), config, cluster_id))
    except KafkaError as error:
        raise CommandError(error.message) from None


def _read_credentials(options: argparse.Namespace, config: BrokerConfig) -> list[UserScramCredentialRecord]:
    if not options.add_scram:
        return []
    if "controller" not in config.process_roles:
        raise CommandError("--add-scram is for controllers: they write the first metadata of a cluster")
    from tailrace.cli.secure.passwords import parse_add_scram

    return [parse_add_scram(text) for text in options.add_scram]


def _restore(options: argparse.Namespace, configs: Sequence[BrokerConfig]) -> int:
    """Nothing is guessed: who has lost the file must know all three ids."""
    from tailrace.cli.node.storage import data_in, format_folder, unformatted_folders

    if options.cluster_id is None or not re.fullmatch(_ID_PATTERN, options.directory_id):
        raise CommandError("--directory-id needs 22 base64url characters, and --cluster-id beside it")
    cluster_id = _decide_cluster_id(options, configs[0], None)
    assert cluster_id is not None, "it was given"
    nameless = [
        (folder, config.node_id)
        for config in configs
        for folder in unformatted_folders(config, may_hold_data=True)
        if data_in(folder) is not None
    ]
    if len(nameless) != 1:
        raise CommandError(
            f"--directory-id restores one folder that holds data and no meta.properties; there are {len(nameless)}: "
            + (", ".join(folder for folder, _ in nameless) or "format new folders without it")
        )
    [(folder, node_id)] = nameless
    format_folder(folder, cluster_id=cluster_id, node_id=node_id, directory_id=options.directory_id)
    print(f"restored meta.properties of {folder} for node {node_id} of cluster {cluster_id}")
    return 0


def _text(voter: Voter) -> str:
    from tailrace.model.ids import uuid_text

    return uuid_text(voter.directory_id)


def _decide_cluster_id(options: argparse.Namespace, config: BrokerConfig, stored: str | None) -> str | None:
    """What is known of it must agree: the data of two clusters in one node would be the end of both."""
    given = {
        "--cluster-id": options.cluster_id,
        "cluster.id of the settings": config.cluster_id,
        "the formatted folders": stored,
    }
    known = {source: value for source, value in given.items() if value is not None}
    if len(set(known.values())) > 1:
        differing = ", ".join(f"{source} {value}" for source, value in known.items())
        raise CommandError(f"the cluster ids differ: {differing}")
    cluster_id = next(iter(known.values()), None)
    if cluster_id is not None and not re.fullmatch(_ID_PATTERN, cluster_id):
        raise CommandError(f"--cluster-id {cluster_id}: a cluster id is 22 base64url characters")
    if cluster_id is None and config.controller_quorum_bootstrap_servers and not _names_only_itself(config):
        raise CommandError(
            "a node of a cluster needs the cluster's id: pass --cluster-id, the same for all nodes "
            "(`tailrace format --new-id` prints a new one)"
        )
    return cluster_id


def _decide_voters(options: argparse.Namespace, config: BrokerConfig, own_id: str, cluster_id: str) -> list[Voter]:
    is_controller = "controller" in config.process_roles
    if config.controller_quorum_voters and (options.standalone or options.initial_controllers):
        raise CommandError(
            "controller.quorum.voters names the voters of the new quorum: take it out of the settings, with its "
            "addresses in controller.quorum.bootstrap.servers instead, or leave out --standalone and "
            "--initial-controllers"
        )
    if not is_controller:
        if options.standalone or options.initial_controllers:
            raise CommandError(f"node {config.node_id} is no controller: only controllers vote (process.roles)")
        return []
    if options.initial_controllers:
        return _parse_voters(options.initial_controllers, config)
    if config.controller_quorum_voters and not options.no_initial_controllers:
        return _named_voters(config, cluster_id)
    if options.standalone or (_names_only_itself(config) and not options.no_initial_controllers):
        return [_own_voter(config, own_id)]
    if config.controller_quorum_bootstrap_servers and not options.no_initial_controllers:
        raise CommandError(
            "a controller of a quorum is formatted with one of --initial-controllers (a new quorum), --standalone (a "
            "new quorum of this one) or --no-initial-controllers (it joins a quorum that is there)"
        )
    return []


def _names_only_itself(config: BrokerConfig) -> bool:
    """A combined node whose controller.quorum.bootstrap.servers are its own listener, as in the file that Kafka comes
    with: nobody else could be meant."""
    names, servers = config.controller_listener_names, config.controller_quorum_bootstrap_servers
    own = {
        f"{endpoint.host or host}:{endpoint.port}"
        for endpoint in (*config.advertised_listeners, *config.listeners)
        for host in ("localhost", "127.0.0.1")
        if endpoint.listener_name in names
    }
    return {"broker", "controller"} <= set(config.process_roles) and bool(servers) and set(map(str, servers)) <= own


def _parse_voters(text: str, config: BrokerConfig) -> list[Voter]:
    from tailrace.cli.node.storage import Voter
    from tailrace.model.ids import parse_uuid

    listener = _own_listener(config)
    voters = []
    for word in text.split(","):
        match = _VOTER_PATTERN.fullmatch(word.strip())
        if match is None or not 0 < int(match[3]) < 65536:
            raise CommandError(
                f"--initial-controllers {word}: expected ID@HOST:PORT:DIRECTORY_ID, such as "
                "1001@one:9093:hjKUl1-jR0m0yStPSxGmGQ"
            )
        host = match[2].removeprefix("[").removesuffix("]")
        voters.append(Voter(int(match[1]), parse_uuid(match[4]), listener, host, int(match[3])))
    ids = [voter.node_id for voter in voters]
    if len(set(ids)) < len(ids) or len({voter.directory_id for voter in voters}) < len(ids):
        raise CommandError("--initial-controllers: a node or a folder is named twice")
    if config.node_id not in ids:
        raise CommandError(f"--initial-controllers does not name this node, {config.node_id}")
    return voters


def _named_voters(config: BrokerConfig, cluster_id: str) -> list[Voter]:
    from tailrace.cli.node.storage import Voter, directory_id_of

    listener = _own_listener(config)
    return [
        Voter(each.node_id, directory_id_of(cluster_id, each.node_id), listener, each.host, each.port)
        for each in config.controller_quorum_voters
    ]


def _own_voter(config: BrokerConfig, own_id: str) -> Voter:
    from tailrace.cli.node.storage import Voter
    from tailrace.model.ids import parse_uuid

    name, host, port = own_endpoint(config)
    return Voter(config.node_id, parse_uuid(own_id), name, host, port)


def own_endpoint(config: BrokerConfig) -> Endpoint:
    """Where other nodes find this controller. CommandError if it says nothing of it."""
    name = _own_listener(config)
    # The advertised address is what other nodes can reach; a listener on all addresses has none of its own.
    endpoints = (*config.advertised_listeners, *config.listeners)
    endpoint = next(endpoint for endpoint in endpoints if endpoint.listener_name == name)
    return endpoint._replace(host=endpoint.host or "localhost")


def _own_listener(config: BrokerConfig) -> str:
    names = [endpoint.listener_name for endpoint in config.listeners]
    for name in config.controller_listener_names:
        if name in names:
            return name
    raise CommandError(
        f"node {config.node_id} has no controller listener: name one of its listeners in controller.listener.names"
    )
