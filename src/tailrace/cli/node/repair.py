"""`tailrace repair`: what is left of a damaged metadata log, what would be lost, and, on request, a start without it.

Shows first and changes nothing; `--apply` does it. The damaged log is kept beside the new one. The node must not run.
"""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

from tailrace.cli import CommandError

if TYPE_CHECKING:
    from tailrace.broker.quorum.damage.inspection import Inspection
    from tailrace.broker.quorum.damage.report import LostRecord
    from tailrace.model.config import BrokerConfig

DESCRIPTION = (
    "Show what is damaged in the metadata log of a node that does not run, and what would be lost. Data is not touched."
)
EXAMPLES = """\
examples:
  tailrace repair --data ./data               what is damaged, and what would be lost; changes nothing
  tailrace repair --data ./data --apply       goes on without it; the damaged log is kept beside
  tailrace repair --config controller-1.toml --apply

A voter among others that has lost records fetches them from the leader when it starts, and has no vote until then. It
mends itself so at a start; this command is for a node that is alone, or whose others are lost too (--accept-loss).
"""

# In the table; --json has all of them.
_RECORDS_SHOWN_MAX = 40


def register(parser: argparse.ArgumentParser) -> None:
    chosen = parser.add_mutually_exclusive_group(required=True)
    chosen.add_argument("--config", metavar="FILE", help="the node's settings, as for `tailrace broker`")
    chosen.add_argument("--data", metavar="DIR", help="its data folder, as for `tailrace up`")
    parser.add_argument("--apply", action="store_true", help="make a sound log of what is left")
    parser.add_argument(
        "--accept-loss",
        action="store_true",
        help="with --apply: this node votes with what it has, though other voters may have more",
    )
    parser.add_argument("--json", action="store_true", help="print facts as JSON")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    from tailrace.broker.quorum.damage.rebuilding import read_damage
    from tailrace.broker.quorum.damage.report import read_lost
    from tailrace.log.identity import take_lock
    from tailrace.model.errors import StorageError
    from tailrace.real.disk import RealDisk

    if options.accept_loss and not options.apply:
        raise CommandError("--accept-loss changes what --apply does: pass both, or neither to look only")
    config = _config(options)
    disk = RealDisk()
    try:
        lock = take_lock(disk, config.metadata_folder)
        try:
            found = read_damage(disk, config.metadata_folder)
            _show(options, found, read_lost(disk, found))
            return _apply(options, config, disk, found) if options.apply else _advise(options, found)
        finally:
            lock.release()
    except StorageError as error:
        raise CommandError(str(error)) from None


def _config(options: argparse.Namespace) -> BrokerConfig:
    from tailrace.cli.node.settings_file import read_settings
    from tailrace.model.config import BrokerConfig

    if options.config is not None:
        config = read_settings(options.config)
        _properties(config.metadata_folder)
        return config
    folder = os.path.abspath(options.data)
    if os.path.exists(f"{folder}/cluster.json"):
        raise CommandError(f"{folder} holds a cluster: name the folder of one of its nodes ({folder}/controller-1)")
    return BrokerConfig(node_id=int(_properties(folder)["node.id"]), log_dirs=(folder,))


def _properties(folder: str) -> dict[str, str]:
    from tailrace.cli.node.storage import properties_of

    properties = properties_of(folder)
    if properties is None:
        raise CommandError(f"{folder} holds no meta.properties: restore it, or name the data folder of a node")
    return properties


def _show(options: argparse.Namespace, found: Inspection, lost: list[LostRecord]) -> None:
    from tailrace.cli.output import print_json, print_rows

    end_offset = found.rest.end_offset
    topics = sorted({record.topic for record in lost if record.topic is not None})
    if options.json:
        print_json(
            {
                "folder": found.folder,
                "is_damaged": found.must_be_rebuilt,
                "is_lossy": found.is_lossy,
                "sound_end_offset": end_offset,
                "synced_end_offset": found.synced_end,
                "problems": [
                    {"file": each.path, "position": each.position, "offset": each.offset, "problem": each.problem}
                    for each in found.problems()
                ],
                "lost_topics": topics,
                "lost_records": [record._asdict() for record in lost] if found.is_lossy else [],
            }
        )
        return
    if not found.must_be_rebuilt:
        print(f"{found.folder} is sound up to offset {end_offset}, and nothing that was synced is missing")
        return
    print(f"{found.folder} is damaged:")
    for problem in found.problems():
        print(f"  {problem}")
    synced = "" if found.synced_end is None else f"; it was synced up to {found.synced_end}"
    print(f"what is sound ends at offset {end_offset}{synced}")
    if not found.is_lossy:
        print("nothing would be lost: snapshots hold what the damaged part held")
        return
    rows = [(each.offset, each.text, None if each.is_sound else "damaged") for each in lost[:_RECORDS_SHOWN_MAX]]
    print_rows(("offset", "record", ""), rows, title="would be lost, as far as it can be read")
    if len(lost) > _RECORDS_SHOWN_MAX:
        print(f"and {len(lost) - _RECORDS_SHOWN_MAX} more; --json shows all")
    if topics:
        print(f"these records tell of topics: {', '.join(topics)}")


def _advise(options: argparse.Namespace, found: Inspection) -> int:
    if found.must_be_rebuilt and not options.json:
        what = "go on without what is lost" if found.is_lossy else "make a sound log of it"
        print(f"nothing was changed; to {what}: tailrace repair {_source(options)} --apply")
    return 0


def _apply(options: argparse.Namespace, config: BrokerConfig, disk: object, found: Inspection) -> int:
    from tailrace.broker.quorum.damage.rebuilding import give_voice, rebuild
    from tailrace.broker.quorum.damage.settling import foreign_servers, has_others, voter_ids
    from tailrace.real.disk import RealDisk
    from tailrace.real.random import RealRandom

    assert isinstance(disk, RealDisk), "a command works on the real one"
    others = has_others(config, disk, found) or bool(foreign_servers(config))
    if not found.must_be_rebuilt:
        if options.accept_loss and give_voice(disk, found.folder):
            print("this voter had lost records before: it votes again, with what it has")
        return 0
    if found.is_lossy and not options.accept_loss and options.data is not None and not voter_ids(disk, found):
        raise CommandError(
            "nothing that is left tells whether this node is one of several voters. If it is, format its folder anew "
            "and add it to the quorum again; if it is alone, pass --accept-loss"
        )
    must_catch_up = found.is_lossy and others and not options.accept_loss
    kept = rebuild(disk, RealRandom(), config.metadata_folder, found, must_catch_up=must_catch_up, keeps_one=False)
    if options.accept_loss:
        give_voice(disk, found.folder)
    if options.json:
        return 0
    print(f"repaired: the metadata log ends at offset {found.rest.end_offset}; the damaged one is kept in {kept}")
    if must_catch_up:
        print("other voters may have what is lost: this node fetches it when it starts, and has no vote until then")
    elif found.is_lossy:
        print("logs of topics that are no longer known are set aside at the next start, with the suffix -stray")
    return 0


def _source(options: argparse.Namespace) -> str:
    return f"--config {options.config}" if options.config is not None else f"--data {options.data}"
