"""`tailrace format`: makes a node's data folders its own, by writing whose they are into meta.properties."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from tailrace.cli import CommandError

if TYPE_CHECKING:
    from tailrace.cli import Subparsers
    from tailrace.model.config import BrokerConfig

EXAMPLES = """\
example:
  tailrace format --config node.toml
"""


def register(subparsers: Subparsers) -> None:
    parser = subparsers.add_parser(
        "format",
        help="prepare the data folders of a node",
        description="Prepare the data folders that a node's settings name. Data that is there is never touched.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--config", required=True, metavar="FILE", help="the node's settings, as for `tailrace broker`")
    parser.add_argument(
        "--ignore-formatted", action="store_true", help="leave folders that are formatted already as they are"
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from tailrace.cli.settings_file import read_settings
    from tailrace.log.checkpoints import write_meta_properties
    from tailrace.model.ids import Uuid, uuid_text
    from tailrace.real.disk import RealDisk
    from tailrace.real.random import RealRandom

    config = read_settings(options.config)
    disk, random = RealDisk(), RealRandom()
    new = unformatted_folders(config)
    formatted = sorted(set(_folders(config)) - set(new))
    if formatted and not options.ignore_formatted:
        raise CommandError(f"{formatted[0]} is formatted already; pass --ignore-formatted to format only new folders")
    cluster_id = config.cluster_id or _cluster_id_of(formatted) or uuid_text(Uuid(random.uuid()))
    for folder in new:
        try:
            disk.make_folder(folder)
            write_meta_properties(
                disk,
                folder,
                {
                    "cluster.id": cluster_id,
                    "node.id": str(config.node_id),
                    "directory.id": uuid_text(Uuid(random.uuid())),
                },
            )
        except OSError as error:
            raise CommandError(f"cannot format {folder}: {error.strerror}") from None
        print(f"formatted {folder} for node {config.node_id} of cluster {cluster_id}")
    return 0


def unformatted_folders(config: BrokerConfig) -> list[str]:
    from tailrace.log.checkpoints import read_meta_properties
    from tailrace.real.disk import RealDisk

    disk = RealDisk()
    return [folder for folder in _folders(config) if read_meta_properties(disk, folder) is None]


def _folders(config: BrokerConfig) -> list[str]:
    """Each once, in the order of the settings."""
    return list(dict.fromkeys((*config.log_dirs, config.metadata_folder)))


def _cluster_id_of(folders: list[str]) -> str | None:
    """A new disk of a node joins the cluster that its other disks belong to."""
    from tailrace.log.checkpoints import read_meta_properties
    from tailrace.real.disk import RealDisk

    properties = read_meta_properties(RealDisk(), folders[0]) if folders else None
    return properties.get("cluster.id") if properties else None
