"""`tailrace schema check|diff`: may this schema be the next version, and what is different between two."""

from __future__ import annotations

import argparse
import asyncio
import difflib
import json
import sys
from typing import Any

from tailrace.cli import Actions, CommandError
from tailrace.cli.output import print_json
from tailrace.cli.schema.asking import RegistryClient, add_registry_options
from tailrace.cli.schema.readers import TopicReader, find_readers, topic_of
from tailrace.cli.session import add_client_options, failure_text
from tailrace.model.errors import KafkaError
from tailrace.real.cluster import open_cluster
from tailrace.schemas import check

DESCRIPTION = "Check whether a schema may be the next version of a subject, and compare versions."
EXAMPLES = """\
examples:
  tailrace schema check order.avsc --subject orders-value       ends with 1 if it may not, for a build to stop
  tailrace schema check order.proto --subject orders-value --reference common.proto=common:3
  tailrace schema diff orders-value                             the last two versions
  tailrace schema diff orders-value 2 5
"""
_TYPES = {".avsc": "AVRO", ".avro": "AVRO", ".proto": "PROTOBUF", ".json": "JSON"}


def register(parser: argparse.ArgumentParser) -> None:
    actions = Actions(parser)
    checked = actions.add(
        "check",
        "say whether a schema may be the next version of a subject, and why not",
        "check order.avsc --subject s",
    )
    checked.add_argument("file", metavar="FILE", help="the schema; .avsc, .proto or .json tells its type")
    checked.add_argument("--subject", required=True, help="such as orders-value")
    checked.add_argument("--type", choices=("AVRO", "JSON", "PROTOBUF"), help="if the file's name does not tell it")
    checked.add_argument(
        "--reference",
        action="append",
        default=[],
        metavar="NAME=SUBJECT:VERSION",
        help="what the schema refers to; repeatable",
    )
    checked.set_defaults(run=run_check)
    compared = actions.add("diff", "show what is different between two versions", "diff orders-value 1 2")
    compared.add_argument("subject", metavar="SUBJECT")
    compared.add_argument("old", nargs="?", type=int, metavar="OLD", help="default: the last but one")
    compared.add_argument("new", nargs="?", type=int, metavar="NEW", help="default: the last")
    compared.set_defaults(run=run_diff)
    for each in (checked, compared):
        add_registry_options(each)
        add_client_options(each)
        each.add_argument("--json", action="store_true", help="print JSON")


# --- check


def run_check(options: argparse.Namespace) -> int:
    schema = _read(options)
    client = RegistryClient(options)
    client.parsed(schema)
    level = client.level(options.subject)
    reasons = client.compare(options.subject, schema)
    topic = topic_of(options.subject)
    readers = _readers(options, topic) if reasons and topic is not None else []
    if options.json:
        print_json(
            {
                "subject": options.subject,
                "compatibility": level,
                "compatible": not reasons,
                "messages": reasons,
                "readers": [reader._asdict() for reader in readers],
            }
        )
        return 1 if reasons else 0
    if not reasons:
        print(f"{options.file} may be the next version of {options.subject} ({level})")
        return 0
    print(f"{options.file} may not be the next version of {options.subject} ({level}):")
    for reason in reasons:
        print(f"  {reason}")
    _tell_readers(topic, readers)
    return 1


def _tell_readers(topic: str | None, readers: list[TopicReader]) -> None:
    if topic is None:
        return
    if not readers:
        print(f"no group reads {topic} now")
        return
    print(f"who would break: {len(readers)} {'group reads' if len(readers) == 1 else 'groups read'} {topic} now")
    for reader in readers:
        print(f"  {reader.group_id} ({reader.members} {'member' if reader.members == 1 else 'members'})")


def _readers(options: argparse.Namespace, topic: str) -> list[TopicReader]:
    async def ask() -> list[TopicReader]:
        cluster = open_cluster(options.bootstrap, security=options.command_config)
        try:
            return await find_readers(cluster, topic)
        finally:
            cluster.close()

    try:
        return asyncio.run(ask())
    except KafkaError as error:
        print(f"tailrace: cannot tell who reads {topic}: {failure_text(error)}", file=sys.stderr)
        return []


def _read(options: argparse.Namespace) -> dict[str, Any]:
    suffix = "." + options.file.rpartition(".")[2]
    kind = options.type or _TYPES.get(suffix)
    if kind is None:
        raise CommandError(f"{options.file}: what kind of schema is it? name it with --type")
    try:
        with open(options.file, encoding="utf-8") as file:
            text = file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"cannot read {options.file}: {error}") from None
    return {"schema": text, "schemaType": kind, "references": [_reference(word) for word in options.reference]}


def _reference(word: str) -> dict[str, Any]:
    name, equals, target = word.rpartition("=")
    subject, colon, version = target.rpartition(":")
    if not equals or not colon or not version.isdigit():
        raise CommandError(f"--reference {word}: expected NAME=SUBJECT:VERSION, such as common.proto=common:3")
    return {"name": name, "subject": subject, "version": int(version)}


# --- diff


def run_diff(options: argparse.Namespace) -> int:
    client = RegistryClient(options)
    numbers = client.versions(options.subject)
    new = numbers[-1] if options.new is None else options.new
    earlier = [number for number in numbers if number < new]
    if options.old is None and not earlier:
        raise CommandError(f"{options.subject} has no version before {new}")
    old = earlier[-1] if options.old is None else options.old
    found = {}
    for number in (old, new):
        document = client.version(options.subject, str(number))
        if document is None:
            raise CommandError(f"{options.subject} has no version {number}; it has {', '.join(map(str, numbers))}")
        found[number] = document
    lines = list(
        difflib.unified_diff(
            _lines(found[old]), _lines(found[new]), f"version {old}", f"version {new}", n=2, lineterm=""
        )
    )
    parsed = {number: client.parsed(document) for number, document in found.items()}
    reasons = {level: check(level, parsed[new], [(old, parsed[old])]) for level in ("BACKWARD", "FORWARD")}
    if options.json:
        print_json({"diff": lines, **{level: [each.message for each in why] for level, why in reasons.items()}})
        return 0
    print("\n".join(lines) if lines else f"versions {old} and {new} have the same text")
    for level, why in reasons.items():
        print(f"{level}: {'compatible' if not why else 'not compatible'}")
        for each in why:
            print(f"  {each.message}\n    {each.remedy}")
    return 0


def _lines(document: dict[str, Any]) -> list[str]:
    text: str = document["schema"]
    if document.get("schemaType") != "PROTOBUF":
        text = json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    return text.splitlines()
