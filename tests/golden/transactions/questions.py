"""Questions about transactions, to be asked of Kafka and of us: `ask_all` gives the answers as plain data.

`python -m tests.golden.transactions.questions PORT` asks a single broker on this machine and prints what belongs into
kafka.json. Its settings: one partition of each internal topic with one replica, and
transaction.abort.timed.out.transaction.cleanup.interval.ms=100.
"""

import asyncio
import json
import os
import sys
from typing import Any

from tailrace.wire.apis.transactions import AddPartitionsToTxnRequest, InitProducerIdRequest, ListTransactionsRequest
from tests.golden.transactions.asking import TIMEOUT_MS, Asking
from tests.unit.broker.world import Peer

_T0, _T1, _U0 = ("t", 0), ("t", 1), ("u", 0)
_NOWHERE, _NO_PARTITION = ("nowhere", 0), ("t", 9)
_LONGEST_TIMEOUT_MS = 900_000


async def ask_all(peer: Peer, suffix: str) -> dict[str, Any]:
    asking = Asking(peer, suffix)
    await asking.prepare("t", "u", "old", "new", "offsets", "markers", "late", "fence")
    for part in (
        _ask_producer_ids,
        _ask_known_epochs,
        _ask_old_clients,
        _ask_old_produce,
        _ask_new_clients,
        _ask_new_epochs,
        _ask_brokers,
        _ask_offsets,
        _ask_members,
        _ask_markers,
        _ask_fencing,
        _ask_timeout,
        _ask_lists,
    ):
        await part(asking)
    return asking.answers


async def _ask_producer_ids(asking: Asking) -> None:
    init = asking.init
    for version in range(6):
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
        await asking.ask(f"idempotent, v{version}", request, version)
        await init(f"empty id, v{version}", "", version)
        await init(f"timeout of 0, v{version}", "i", version, transaction_timeout_ms=0)
        too_long_ms = _LONGEST_TIMEOUT_MS + 1
        await init(f"timeout too long, v{version}", "i", version, transaction_timeout_ms=too_long_ms)
        await init(f"init, v{version}", "i", version)
    await init("negative timeout", "i", 5, transaction_timeout_ms=-1)
    await init("longest timeout", "i", 5, transaction_timeout_ms=_LONGEST_TIMEOUT_MS)
    for fields in ({"producer_id": 4}, {"producer_epoch": 4}):
        for transactional_id in (None, asking.name("i")):
            request = InitProducerIdRequest(
                transactional_id=transactional_id, transaction_timeout_ms=TIMEOUT_MS, **fields
            )
            await asking.ask(f"half a producer {fields} with {transactional_id is not None}", request, 4)
    idempotent = InitProducerIdRequest(transactional_id=None, producer_id=4, producer_epoch=2)
    await asking.ask("idempotent with epoch", idempotent, 4)
    await asking.note_stored("i")


async def _ask_known_epochs(asking: Asking) -> None:
    """A producer that names its id and epoch."""
    init = asking.init
    first = await init("known: first", "k", 4)
    named = {"producer_id": first.producer_id, "producer_epoch": first.epoch}
    await init("known: next", "k", 4, **named)
    await init("known: next, sent again", "k", 4, **named)
    await init("known: epoch too high", "k", 4, **{**named, "producer_epoch": 7})
    await init("known: another producer", "k", 4, **{**named, "producer_id": first.producer_id + 500})
    await init("known: another producer, v3", "k", 3, **{**named, "producer_id": first.producer_id + 500})
    await init("known: a stranger takes over", "k", 4)
    for version in (3, 4, 5):
        await init(f"known: after that, v{version}", "k", version, **named)
    await init("known: never heard of", "k2", 4, producer_id=first.producer_id, producer_epoch=3)
    await asking.note_stored("k")


async def _ask_old_clients(asking: Asking) -> None:
    """Version 1: partitions are added by the client, the epoch stays."""
    add, end, read = asking.add, asking.end, asking.read
    producer = await asking.init("old: init", "o", 4)
    for version in (0, 1, 2, 3, 4):
        await end(f"old: commit of nothing, v{version}", producer, committed=True, version=version)
        await end(f"old: abort of nothing, v{version}", producer, committed=False, version=version)
    await asking.describe("old: described, empty", "o")
    for version in range(4):
        await add(f"old: add unknown, v{version}", producer, _T0, _NOWHERE, _NO_PARTITION, version=version)
        await add(f"old: add by the wrong id, v{version}", producer, _T0, version=version, producer_id=987_654)
        await add(f"old: add by a low epoch, v{version}", producer, _T0, version=version, epoch=-1)
        await add(f"old: add by a high epoch, v{version}", producer, _T0, version=version, epoch=5)
        await add(f"old: add to an unknown id, v{version}", producer, _T0, version=version, transactional_id="o9")
        await add(f"old: add to an empty id, v{version}", producer, _T0, version=version, transactional_id="")
        await add(f"old: add nothing, v{version}", producer, version=version)
    await asking.describe("old: described, with nothing added", "o")
    for version in range(5):
        is_commit = version % 2 == 0
        await add(f"old: add, v{version}", producer, _T0, version=min(version, 3))
        await add(f"old: add again and more, v{version}", producer, _T0, _U0, version=min(version, 3))
        await asking.produce(f"old: produce, v{version}", producer, _T0, 11, value=b"%d" % version)
        await read(f"uncommitted, old v{version}", _T0, is_committed=False)
        await read(f"committed, old v{version}", _T0, is_committed=True)
        await asking.describe(f"old: described, v{version}", "o")
        await asking.describe_producers(f"old: producers, v{version}", _T0, _U0)
        await end(f"old: end of another epoch, v{version}", producer, committed=True, version=version, epoch=7)
        await end(f"old: end of another id, v{version}", producer, committed=True, version=version, producer_id=98_765)
        await end(f"old: end, v{version}", producer, committed=is_commit, version=version)
        await end(f"old: end again, v{version}", producer, committed=is_commit, version=version)
        await end(f"old: end otherwise, v{version}", producer, committed=not is_commit, version=version)
        await read(f"committed after the end, old v{version}", _T0, is_committed=True)
        await asking.describe(f"old: described after the end, v{version}", "o")
        await asking.describe_producers(f"old: producers after the end, v{version}", _T0, _U0)
    await read("committed, from the middle", _T0, is_committed=True, offset=3)
    await asking.note_stored("o")


async def _ask_old_produce(asking: Asking) -> None:
    produce, place = asking.produce, ("old", 0)
    producer = await asking.init("old produce: init", "p", 4)
    for version in range(3, 12):
        await produce(f"old produce: not added, v{version}", producer, place, version)
        await produce(f"old produce: unknown id, v{version}", producer, place, version, transactional_id="p9")
        await produce(f"old produce: no id, v{version}", producer, place, version, transactional_id="")
    await asking.add("old produce: add", producer, place, version=3)
    await produce("old produce: high epoch", producer, place, 11, epoch=9)
    await produce("old produce: other producer", producer, place, 11, producer_id=765_432)
    await produce("old produce: next", producer, place, 11)
    await produce("old produce: sent again", producer, place, 11, sequence=0)
    await produce("old produce: gap", producer, place, 11, sequence=7)
    await produce("old produce: plain batch in a transaction", producer, place, 11, transactional=False)
    await produce(
        "old produce: plain batch without an id", producer, place, 11, transactional=False, transactional_id=""
    )
    await produce("old produce: other partition", producer, ("old", 1), 11)
    await produce("old produce: unknown partition", producer, _NO_PARTITION, 11)
    await asking.end("old produce: commit", producer, committed=True, version=4)
    await produce("old produce: after the commit", producer, place, 11)
    await produce("old produce: sent again after the commit", producer, place, 11, sequence=1)
    await asking.read("old produce", place, is_committed=True)
    late = await asking.init("old produce: another init", "p2", 4)
    await asking.add("old produce: another add", late, place, version=3)
    await produce("old produce: sequence not 0", late, place, 11, sequence=4)
    await asking.end("old produce: another abort", late, committed=False, version=4)
    plain = {"transactional": False, "transactional_id": ""}
    await produce("old produce: plain batch after the commit", producer, place, 11, **plain)


async def _ask_new_clients(asking: Asking) -> None:
    """Version 2: partitions are added by the broker, the epoch rises with every transaction."""
    produce, end, read, place, other = asking.produce, asking.end, asking.read, ("new", 0), ("new", 1)
    producer = await asking.init("new: init", "n", 5)
    await end("new: commit of nothing", producer, committed=True, version=5)
    await end("new: abort of nothing", producer, committed=False, version=5)
    await asking.describe("new: described after an abort of nothing", "n")
    await end("new: abort of nothing again", producer, committed=False, version=5)
    await end("new: abort of nothing, sent again", producer, committed=False, version=5, epoch=producer.epoch - 1)
    for version in (12,):
        await produce(f"new: unknown id, v{version}", producer, place, version, transactional_id="n9")
        await produce(f"new: no id, v{version}", producer, place, version, transactional_id="")
        await produce(f"new: other producer, v{version}", producer, place, version, producer_id=765_432)
        await produce(f"new: low epoch, v{version}", producer, place, version, epoch=0)
        await produce(f"new: high epoch, v{version}", producer, place, version, epoch=9)
        await produce(f"new: sequence not 0, v{version}", producer, place, version, sequence=3)
        await asking.describe(f"new: described with nothing produced, v{version}", "n")
        await produce(f"new: unknown partition, v{version}", producer, _NO_PARTITION, version)
    for number in range(4):
        is_commit = number % 2 == 1
        await produce(f"new: produce {number}", producer, place, 12, value=b"%d" % number)
        await produce(f"new: produce more {number}", producer, place, 12, value=b"more")
        await produce(f"new: sent again {number}", producer, place, 12, sequence=1, value=b"more")
        await produce(f"new: gap {number}", producer, place, 12, sequence=9)
        await produce(f"new: other partition {number}", producer, other, 12)
        await read(f"committed, new {number}", place, is_committed=True)
        await asking.describe(f"new: described {number}", "n")
        await asking.describe_producers(f"new: producers {number}", place, other, _NO_PARTITION, _NOWHERE)
        before = producer.epoch
        producer_id = producer.producer_id
        await end(f"new: end of a low epoch {number}", producer, committed=True, version=5, epoch=before - 2)
        await end(f"new: end of the epoch before {number}", producer, committed=is_commit, version=5, epoch=before - 1)
        await end(f"new: end of a high epoch {number}", producer, committed=True, version=5, epoch=before + 1)
        await end(f"new: end of another id {number}", producer, committed=True, version=5, producer_id=765_432)
        await end(f"new: end {number}", producer, committed=is_commit, version=5)
        old = {"epoch": before, "producer_id": producer_id}
        await end(f"new: end again {number}", producer, committed=is_commit, version=5, **old)
        await end(f"new: end otherwise {number}", producer, committed=not is_commit, version=5, **old)
        await produce(f"new: late produce {number}", producer, place, 12, sequence=2, **old)
        await produce(
            f"new: produce sent again too late {number}", producer, place, 12, sequence=1, value=b"more", **old
        )
        await read(f"committed after the end, new {number}", place, is_committed=True)
        await asking.describe(f"new: described after the end {number}", "n")
        await asking.describe_producers(f"new: producers after the end {number}", place)
        producer.sequences.clear()
    await asking.note_stored("n")


async def _ask_new_epochs(asking: Asking) -> None:
    """A delayed EndTxn while the next transaction is open; both versions of clients on one id."""
    produce, end, place = asking.produce, asking.end, ("new", 1)
    producer = await asking.init("delayed: init", "d", 5)
    await produce("delayed: first", producer, place, 12)
    first = producer.epoch
    await end("delayed: commit", producer, committed=True, version=5)
    await produce("delayed: second", producer, place, 12)
    for committed in (True, False):
        await end(f"delayed: commit={committed} of the first", producer, committed=committed, version=5, epoch=first)
    await asking.describe("delayed: described", "d")
    await end("delayed: commit of the second", producer, committed=True, version=5)
    await produce("mixed: produce as new", producer, place, 12)
    await end("mixed: end as old", producer, committed=True, version=4)
    await asking.describe("mixed: described", "d")
    await asking.add("mixed: add as old", producer, place, version=3)
    await produce("mixed: produce as old", producer, place, 11)
    await end("mixed: end as new", producer, committed=True, version=5)
    await asking.describe("mixed: described again", "d")
    await asking.read("mixed", place, is_committed=True)
    await asking.note_stored("d")


async def _ask_brokers(asking: Asking) -> None:
    """AddPartitionsToTxn as brokers use it."""
    add = asking.add
    producer = await asking.init("brokers: init", "b", 5)
    for version in (4, 5):
        await add(f"verify, nothing added, v{version}", producer, _T0, version=version, verify_only=True)
        await add(f"verify unknown, v{version}", producer, _T0, _NOWHERE, version=version, verify_only=True)
        wrong = {"version": version, "verify_only": True}
        await add(f"verify another producer, v{version}", producer, _T0, **wrong, producer_id=765_432)
        await add(f"verify a low epoch, v{version}", producer, _T0, **wrong, epoch=-1)
        await add(f"verify a high epoch, v{version}", producer, _T0, **wrong, epoch=9)
        await add(f"verify an unknown id, v{version}", producer, _T0, **wrong, transactional_id="b9")
        await add(f"verify an empty id, v{version}", producer, _T0, **wrong, transactional_id="")
        await add(f"broker adds, v{version}", producer, _T0, version=version)
        await add(f"verify in part, v{version}", producer, _T0, _T1, **wrong)
        await add(f"broker adds unknown, v{version}", producer, _T1, _NOWHERE, version=version)
        await asking.describe(f"brokers: described, v{version}", "b")
        await asking.end(f"brokers: end, v{version}", producer, committed=True, version=5)
    kind = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction
    topic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(name=asking.name("t"), partitions=[0])
    several = [
        kind(transactional_id=asking.name(name), producer_id=producer.producer_id, producer_epoch=epoch, topics=[topic])
        for name, epoch in (("b", producer.epoch), ("b8", 0), ("b9", 0))
    ]
    await asking.ask("brokers: several", AddPartitionsToTxnRequest(transactions=several), 5)
    await asking.end("brokers: last end", producer, committed=False, version=5)
    await asking.note_stored("b")


async def _ask_offsets(asking: Asking) -> None:
    commit, fetch = asking.commit_offsets, asking.fetch_offsets
    producer = await asking.init("offsets: init", "f", 4)
    for version in range(5):
        await commit(f"offsets: not added, v{version}", producer, ("t", 0, 3), version=version)
        await asking.add_offsets(f"add offsets of another producer, v{version}", producer, version, producer_id=765_432)
        await asking.add_offsets(f"add offsets of another epoch, v{version}", producer, version, epoch=7)
        await asking.add_offsets(f"add offsets to an unknown id, v{version}", producer, version, transactional_id="f9")
        await asking.add_offsets(f"add offsets to an empty id, v{version}", producer, version, transactional_id="")
    for version in range(5):
        is_commit = version % 2 == 0
        await asking.add_offsets(f"add offsets, v{version}", producer, version)
        await asking.add_offsets(f"add offsets again, v{version}", producer, version)
        places = (("t", 0, 10 + version), ("u", 1, 20 + version), ("nowhere", 0, 1), ("t", 9, 1))
        await commit(f"commit offsets, v{version}", producer, *places, version=version)
        await commit(f"commit offsets again, v{version}", producer, *places, version=version)
        await commit(f"commit no offsets, v{version}", producer, version=version)
        await fetch(f"fetch stable while open, v{version}", require_stable=True)
        await fetch(f"fetch while open, v{version}", require_stable=False)
        await asking.describe(f"offsets: described, v{version}", "f")
        await asking.end(f"offsets: end, v{version}", producer, committed=is_commit, version=version)
        await fetch(f"fetch stable after the end, v{version}", require_stable=True)
    new = await asking.init("offsets: init of a new client", "h", 5)
    for is_commit in (True, False):
        label = f"new, commit={is_commit}"
        await commit(f"offsets of {label}", new, ("t", 0, 30 + is_commit), version=5, group="g5")
        await fetch(f"fetch stable while open, {label}", require_stable=True, group="g5")
        await asking.describe(f"offsets: described, {label}", "h")
        await asking.end(f"offsets: end, {label}", new, committed=is_commit, version=5)
        await fetch(f"fetch stable after the end, {label}", require_stable=True, group="g5")
        await commit(f"offsets of an old epoch, {label}", new, ("t", 0, 9), version=5, group="g5", epoch=new.epoch - 1)
    for fields in ({"producer_id": 765_432}, {"epoch": 9}, {"transactional_id": "h9"}, {"transactional_id": ""}):
        await commit(f"offsets of a new client with {fields}", new, ("t", 0, 9), version=5, group="g5", **fields)
    await commit("offsets without a group", new, ("t", 0, 9), version=5, group="")
    await asking.end("offsets: last end", new, committed=False, version=5)


async def _ask_members(asking: Asking) -> None:
    """KIP-447: the group has a say."""
    commit = asking.commit_offsets
    producer = await asking.init("members: init", "m", 4)
    await asking.add_offsets("members: add", producer, 4, group="gm")
    for fields in (
        {"generation_id": 3, "member_id": "q"},
        {"generation_id": -1, "member_id": "q"},
        {"generation_id": 3},
        {"group_instance_id": "q"},
    ):
        await commit(f"members: commit with {fields}", producer, ("t", 0, 3), version=3, group="gm", **fields)
        await commit(f"members: commit again with {fields}", producer, ("t", 0, 3), version=4, group="gm", **fields)
    await asking.end("members: end", producer, committed=False, version=4)


async def _ask_markers(asking: Asking) -> None:
    mark, place, other = asking.mark, ("markers", 0), ("markers", 1)
    for version in (1, 2):
        await asking.init(f"markers: first init, v{version}", f"w{version}", 4)
        producer = await asking.init(f"markers: init, v{version}", f"w{version}", 4)
        await asking.add(f"markers: add, v{version}", producer, place, other, version=3)
        await asking.produce(f"markers: produce, v{version}", producer, place, 11)
        await mark(f"marker elsewhere, v{version}", producer, _NOWHERE, _NO_PARTITION, committed=True, version=version)
        low = {"epoch": producer.epoch - 1, "version": version}
        await mark(f"marker of a low epoch, v{version}", producer, place, committed=False, **low)
        rest = {"version": version, "coordinator_epoch": 10}
        if version == 2:
            again = {**rest, "transaction_version": 2}
            await mark("marker of version 2 with the same epoch", producer, place, committed=False, **again)
        await mark(f"marker, v{version}", producer, place, other, committed=False, **rest)
        await mark(f"marker again, v{version}", producer, place, committed=False, **rest)
        await mark(f"marker of an earlier coordinator, v{version}", producer, place, committed=True, version=version)
        await asking.describe_producers(f"markers: producers, v{version}", place, other)
        await asking.describe(f"markers: described, v{version}", f"w{version}")
        await asking.produce(f"markers: produce after it, v{version}", producer, place, 11)
        later = {**rest, "epoch": producer.epoch + 1}
        await mark(f"marker with the next epoch, v{version}", producer, place, committed=True, **later)
        await asking.produce(f"markers: produce too late, v{version}", producer, place, 11)
        await asking.read(f"markers v{version}", place, is_committed=True)
    stranger = await asking.init("markers: stranger", "w9", 4)
    await mark("marker of an unknown producer", stranger, other, committed=True, version=2, transaction_version=2)
    await asking.read("markers, other", other, is_committed=True)


async def _ask_fencing(asking: Asking) -> None:
    place, other = ("fence", 0), ("fence", 1)
    for version, produce_version, label in ((4, 11, "old"), (5, 12, "new")):
        zombie = await asking.init(f"zombie: init, {label}", f"z{label}", version)
        if label == "old":
            await asking.add("zombie: add", zombie, place, version=3)
        await asking.produce(f"zombie: produce, {label}", zombie, place, produce_version)
        again = {"is_repeated": False}
        await asking.init(f"zombie: another instance at once, {label}", f"z{label}", version, **again)
        successor = await asking.init(f"zombie: another instance, {label}", f"z{label}", version)
        await asking.describe(f"zombie: described, {label}", f"z{label}")
        for each in range(4) if label == "old" else ():
            await asking.add(f"zombie: adds, v{each}", zombie, other, version=each)
        for each in range(5) if label == "old" else (5,):
            await asking.end(f"zombie: commits, v{each}", zombie, committed=True, version=each)
            await asking.end(f"zombie: aborts, v{each}", zombie, committed=False, version=each)
        for each in range(5) if label == "old" else ():
            await asking.add_offsets(f"zombie: adds offsets, v{each}", zombie, each)
            await asking.commit_offsets(f"zombie: commits offsets, v{each}", zombie, ("t", 0, 1), version=each)
        for each in (0, 2, 3, 4, 5):
            named = {"producer_id": zombie.producer_id, "producer_epoch": zombie.epoch} if each > 2 else {}
            if named:
                await asking.init(f"zombie: {label} inits, v{each}", f"z{label}", each, **named)
        for each in (3, 10, 11) if label == "old" else (12,):
            await asking.produce(f"zombie: produces, v{each}", zombie, place, each)
            await asking.produce(f"zombie: produces elsewhere, v{each}", zombie, other, each)
        await asking.read(f"zombie, {label}", place, is_committed=True)
        if label == "old":
            await asking.add("successor: add", successor, place, version=3)
        await asking.produce(f"successor: produce, {label}", successor, place, produce_version)
        await asking.end(f"successor: commit, {label}", successor, committed=True, version=version)
        await asking.read(f"successor, {label}", place, is_committed=True)
        await asking.note_stored(f"z{label}")


async def _ask_timeout(asking: Asking) -> None:
    place = ("late", 0)
    for version, produce_version, label in ((4, 11, "old"), (5, 12, "new")):
        producer = await asking.init(f"late: init, {label}", f"l{label}", version, transaction_timeout_ms=300)
        if label == "old":
            await asking.add("late: add", producer, place, version=3)
        await asking.produce(f"late: produce, {label}", producer, place, produce_version)
        await asyncio.sleep(1)
        await asking.describe(f"late: described, {label}", f"l{label}")
        await asking.produce(f"late: produce more, {label}", producer, place, produce_version)
        await asking.end(f"late: commit, {label}", producer, committed=True, version=version)
        await asking.end(f"late: abort, {label}", producer, committed=False, version=version)
        named = {"producer_id": producer.producer_id, "producer_epoch": producer.epoch}
        await asking.init(f"late: init with what it knows, {label}", f"l{label}", version, **named)
        await asking.init(f"late: init anew, {label}", f"l{label}", version)
        await asking.read(f"late, {label}", place, is_committed=True)
        await asking.note_stored(f"l{label}")


async def _ask_lists(asking: Asking) -> None:
    await asking.describe("describe several", "o", "n", "nobody", "")
    await asking.describe("describe none")
    open_one = await asking.init("lists: init", "s", 5)
    await asking.produce("lists: produce", open_one, ("new", 0), 12)
    filters: dict[str, dict[str, Any]] = {
        "all": {},
        "open ones": {"state_filters": ["Ongoing"]},
        "in several states": {"state_filters": ["Ongoing", "Empty", "bogus", "ongoing"]},
        "in an unknown state": {"state_filters": ["bogus"]},
        "of a producer": {"producer_id_filters": [open_one.producer_id, 765_432]},
        "of no producer": {"producer_id_filters": [765_432]},
        "for long": {"duration_filter": 600_000},
        "at all": {"duration_filter": 0},
        "by name": {"transactional_id_pattern": "[on]" + asking.suffix},
        "by part of a name": {"transactional_id_pattern": "o"},
        "by no name": {"transactional_id_pattern": ""},
        "by a bad name": {"transactional_id_pattern": "(o"},
    }
    await asyncio.sleep(0.01)
    for label, each in filters.items():
        answer = await asking.peer.request(ListTransactionsRequest(**each), 2)
        mine = [state for state in answer.transaction_states if state.transactional_id.endswith(asking.suffix)]
        answer.transaction_states = mine
        asking.answers[f"list {label}"] = asking.plain(answer)
    await asking.end("lists: end", open_one, committed=True, version=5)


async def _record(port: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    peer = Peer(reader, writer)
    answers = await ask_all(peer, f"-{os.urandom(4).hex()}")
    await peer.close()
    lines = [f"{json.dumps(label)}: {json.dumps(answer, sort_keys=True)}" for label, answer in answers.items()]
    print("{\n" + ",\n".join(lines) + "\n}")


if __name__ == "__main__":
    asyncio.run(asyncio.wait_for(_record(int(sys.argv[1])), 120))
