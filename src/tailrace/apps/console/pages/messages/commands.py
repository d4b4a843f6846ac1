"""The same messages by a command, and by a program that people have anyway. Names are quoted as the shell and as
Python want it, so that a name stays a name."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

_PROGRAM = """\
from confluent_kafka import Consumer, TopicPartition

consumer = Consumer({{"bootstrap.servers": {bootstrap!r}, "group.id": "looking", "enable.auto.commit": False}})
consumer.assign([TopicPartition({topic!r}, {partition}, {offset})])
for message in consumer.consume({count}, timeout=10):
    print(message.partition(), message.offset(), message.key(), message.value(), message.headers())
consumer.close()
"""


def command_for(bootstrap: str, topic: str, asked: Mapping[str, str]) -> str:
    """What the page shows."""
    words = ["tailrace", "consume", shlex.quote(topic), "--bootstrap", shlex.quote(bootstrap), "--until-end"]
    if asked.get("partition"):
        words += ["--partition", shlex.quote(asked["partition"])]
    start = asked.get("start", "newest")
    if start == "offset" and asked.get("offset"):
        words += ["--from", shlex.quote(asked["offset"])]
    elif start == "time" and asked.get("time"):
        words += ["--from-time", shlex.quote(asked["time"])]
    if "committed" in asked:
        words += ["--isolation", "read_committed"]
    return " ".join(words)


def command_for_one(bootstrap: str, topic: str, partition: int, offset: int) -> str:
    words = ["tailrace", "consume", shlex.quote(topic), "--bootstrap", shlex.quote(bootstrap)]
    return " ".join([*words, f"--partition {partition} --from {offset} --count 1 --json"])


def program_for(bootstrap: str, topic: str, partition: int, offset: int | str, count: int) -> str:
    return _PROGRAM.format(bootstrap=bootstrap, topic=topic, partition=partition, offset=offset, count=count)
