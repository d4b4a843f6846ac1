"""What a transactional id answers in each state to each request, by whom it is sent: asked of Kafka and of us.

A row is a state and a request; its cells are who asks: the producer with the epoch before the coordinator's own, with
that epoch, with the one after, or with another producer id. Each cell has an id of its own and says the answer, and the
state and epoch that the coordinator tells afterwards. In the states in between the markers are held back: a partition
of the transaction, FAR, has its only replica on a broker that is not there any more.

`python -m tests.golden.transactions.table` starts two nodes of Apache Kafka and prints what belongs into
kafka_table.json.
"""

import asyncio
import json
import os
import tempfile
from collections.abc import Awaitable, Callable
from copy import copy
from functools import partial
from pathlib import Path
from typing import Any

from tailrace.coordinator.transactions.transaction import LAST_EPOCH
from tailrace.model.errors import ErrorCode
from tailrace.wire.apis.admin import CreateTopicsRequest, UpdateFeaturesRequest
from tailrace.wire.apis.data import ListOffsetsRequest
from tailrace.wire.apis.transactions import DescribeTransactionsRequest, EndTxnRequest, InitProducerIdRequest
from tests.golden.transactions.asking import Asking, Producer, error_codes
from tests.unit.broker.world import Peer

NEAR, FAR = "near", "far"
_NEAR = (NEAR, 0)
_FAR = (FAR, 0)
_TRIES = 200
_PAUSE_SECONDS = 0.01
# What is left open ends after all is asked.
_TIMEOUT_MS = 900_000
# A broker that is gone stays the leader: Kafka needs no markers where there is none. And nobody waits for long.
SETTINGS = {"broker.session.timeout.ms": "600000", "add.partitions.to.txn.retry.backoff.max.ms": "1"}
_WHO = {"older": -1, "current": 0, "newer": 1, "another id": None}
_SOMEBODY_ELSE = 987_654

Request = Callable[[Asking, str, Producer], Awaitable[Any]]

REQUESTS: dict[str, Request] = {
    "commit v4": lambda asking, label, who: asking.end(label, who, committed=True, version=4),
    "abort v4": lambda asking, label, who: asking.end(label, who, committed=False, version=4),
    "commit v5": lambda asking, label, who: asking.end(label, who, committed=True, version=5),
    "abort v5": lambda asking, label, who: asking.end(label, who, committed=False, version=5),
    "init v5": lambda asking, label, who: asking.init(
        label, who.transactional_id, 5, producer_id=who.producer_id, producer_epoch=who.epoch
    ),
    "init of a new instance v5": lambda asking, label, who: asking.init(label, who.transactional_id, 5),
    "add v3": lambda asking, label, who: asking.add(label, who, (NEAR, 1), version=3),
    "add again v3": lambda asking, label, who: asking.add(label, who, _NEAR, version=3),
    "add v5": lambda asking, label, who: asking.add(label, who, (NEAR, 1), version=5),
    "verify v5": lambda asking, label, who: asking.add(label, who, _NEAR, version=5, verify_only=True),
    "add offsets v4": lambda asking, label, who: asking.add_offsets(label, who, 4),
    "commit offsets v4": lambda asking, label, who: asking.commit_offsets(label, who, (NEAR, 0, 1), version=4),
    "commit offsets v5": lambda asking, label, who: asking.commit_offsets(label, who, (NEAR, 0, 1), version=5),
    "produce v11": lambda asking, label, who: asking.produce(label, who, _NEAR, 11),
    "produce v12": lambda asking, label, who: asking.produce(label, who, _NEAR, 12),
}
# Who asks makes no difference to a new instance.
_ALONE = ("init of a new instance v5",)


class Table:
    """`peer` is the coordinator of all ids. Its answers are rows: a name, and a cell for each who may ask."""

    def __init__(self, peer: Peer, suffix: str) -> None:
        self.asking = Asking(peer, suffix)
        self.rows: dict[str, dict[str, str]] = {}
        self._count = 0

    async def prepare(self, *, far: int, stop_far: Callable[[], Awaitable[None]]) -> None:
        """`far` is the broker that `stop_far` ends. Internal topics must be on the other one."""
        await self.asking.prepare()
        for topic, node_id, partitions in ((NEAR, None, 2), (FAR, far, 1)):
            await self._create(topic, node_id, partitions)
        await stop_far()
        self.asking.is_patient = False

    async def _create(self, topic: str, node_id: int | None, partitions: int) -> None:
        kind = CreateTopicsRequest.CreatableReplicaAssignment
        near = await self.asking.find_node()
        assignments = [
            kind(partition_index=index, broker_ids=[near if node_id is None else node_id])
            for index in range(partitions)
        ]
        created = CreateTopicsRequest.CreatableTopic(
            name=self.asking.name(topic), num_partitions=-1, replication_factor=-1, assignments=assignments
        )
        answer = await self.asking.peer.request(CreateTopicsRequest(topics=[created], timeout_ms=5000), 7)
        assert answer.topics[0].error_code == 0, answer.topics[0].error_message

    async def set_transaction_version(self, level: int) -> None:
        update = UpdateFeaturesRequest.FeatureUpdateKey(
            feature="transaction.version", max_version_level=level, upgrade_type=2
        )
        answer = await self.asking.peer.request(UpdateFeaturesRequest(feature_updates=[update]), 1)
        assert answer.error_code == 0, answer.error_message

    async def fill(self, name: str, reach: Callable[[str], Awaitable[Producer]], *, held: bool = False) -> None:
        """The rows of one state, which `reach` brings a new transactional id to."""
        for request, send in REQUESTS.items():
            row: dict[str, str] = {}
            for who, epochs in _WHO.items():
                if request in _ALONE and who != "current":
                    continue
                producer = await reach(self._new_id())
                named = copy(producer)
                if epochs is None:
                    named.producer_id = _SOMEBODY_ELSE
                else:
                    named.epoch += epochs
                row[who] = await self.cell(
                    lambda label, send=send, who=named: send(self.asking, label, who), producer, held=held
                )
            self.rows[f"{name}: {request}"] = row

    def _new_id(self) -> str:
        self._count += 1
        return f"x{self._count}"

    async def cell(self, send: Callable[[str], Awaitable[Any]], producer: Producer, *, held: bool = False) -> str:
        label = f"cell {self._count}"
        asking = self.asking
        await send(label)
        answer = asking.last_answer
        codes = {ErrorCode(code).name for code in error_codes(answer) if code}
        text = " ".join(sorted(codes)) or "NONE"
        if not codes and getattr(answer, "producer_id", -1) >= 0:
            kind = "the same id" if answer.producer_id == producer.producer_id else "a new id"
            text += f", {kind} with epoch {answer.producer_epoch}"
        described = await self.describe(producer.transactional_id, held=held)
        self.asking.answers.clear()
        return f"{text}; {described.transaction_state} {described.producer_epoch}"

    async def describe(self, transactional_id: str, *, held: bool) -> Any:
        """Unless its markers are held back, a transaction is described once it has left the states in between."""
        request = DescribeTransactionsRequest(transactional_ids=[self.asking.name(transactional_id)])
        for _ in range(_TRIES):
            answer = await self.asking.peer.request(request, 0)
            described = answer.transaction_states[0]
            if held or not described.transaction_state.startswith("Prepare"):
                break
            await asyncio.sleep(_PAUSE_SECONDS)
        return described

    # ---- how states are reached

    async def init(self, transactional_id: str) -> Producer:
        request = InitProducerIdRequest(
            transactional_id=self.asking.name(transactional_id), transaction_timeout_ms=_TIMEOUT_MS
        )
        for _ in range(_TRIES):
            answer = await self.asking.peer.request(request, 5)
            if answer.error_code != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:  # New producer ids are being asked for.
                break
            await asyncio.sleep(_PAUSE_SECONDS)
        assert answer.error_code == 0, ErrorCode(answer.error_code).name
        return Producer(transactional_id, answer.producer_id, answer.producer_epoch)

    async def empty(self, transactional_id: str) -> Producer:
        await self.init(transactional_id)
        return await self.init(transactional_id)  # So that there is an epoch before this one.

    async def ongoing(self, transactional_id: str, version: int, *, is_far: bool = False) -> Producer:
        producer = await self.empty(transactional_id)
        await self.begin(producer, version, is_far=is_far)
        return producer

    async def begin(self, producer: Producer, version: int, *, is_far: bool) -> None:
        places = (_NEAR, _FAR) if is_far else (_NEAR,)
        await self._checked(lambda label: self.asking.add(label, producer, *places, version=5 if version == 2 else 3))

    async def end(self, producer: Producer, version: int, *, committed: bool, is_far: bool) -> None:
        """With the markers of what is near written, and all of them unless they are held back."""
        end_offset = await self._near_end()
        request = self.end_request(producer, committed=committed)
        answer = await self.asking.peer.request(request, 5 if version == 2 else 4)
        assert answer.error_code == 0, ErrorCode(answer.error_code).name
        await self._note_end(producer, end_offset, is_far=is_far)

    def end_request(self, producer: Producer, *, committed: bool) -> EndTxnRequest:
        return EndTxnRequest(
            transactional_id=self.asking.name(producer.transactional_id),
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            committed=committed,
        )

    async def ended(self, transactional_id: str, version: int, *, committed: bool, is_far: bool) -> Producer:
        producer = await self.ongoing(transactional_id, version, is_far=is_far)
        await self.end(producer, version, committed=committed, is_far=is_far)
        return producer

    async def taken_over(self, transactional_id: str, version: int, *, is_far: bool) -> Producer:
        """A new instance has aborted the transaction, and is not there yet."""
        producer = await self.ongoing(transactional_id, version, is_far=is_far)
        end_offset = await self._near_end()
        request = InitProducerIdRequest(
            transactional_id=self.asking.name(transactional_id), transaction_timeout_ms=_TIMEOUT_MS
        )
        answer = await self.asking.peer.request(request, 5)
        assert answer.error_code == ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode(answer.error_code).name
        await self._note_end(producer, end_offset, is_far=is_far)
        return producer

    async def _note_end(self, producer: Producer, end_offset: int, *, is_far: bool) -> None:
        for _ in range(_TRIES):
            if await self._near_end() > end_offset:
                break
            await asyncio.sleep(_PAUSE_SECONDS)
        described = await self.describe(producer.transactional_id, held=is_far)
        assert described.transaction_state.startswith("Prepare" if is_far else "Complete"), described
        producer.producer_id, producer.epoch = described.producer_id, described.producer_epoch

    async def _near_end(self) -> int:
        asked = ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=-1)
        topic = ListOffsetsRequest.ListOffsetsTopic(name=self.asking.name(NEAR), partitions=[asked])
        answer = await self.asking.peer.request(ListOffsetsRequest(replica_id=-1, topics=[topic]), 5)
        return answer.topics[0].partitions[0].offset

    async def _checked(self, send: Callable[[str], Awaitable[Any]]) -> None:
        self._count += 1
        await send(f"reached {self._count}")
        assert not any(error_codes(self.asking.last_answer)), self.asking.last_answer


async def fill_all(table: Table) -> None:
    await table.fill("Empty", table.empty)
    for version in (1, 2):
        await table.fill(f"Ongoing by version {version}", lambda name, v=version: table.ongoing(name, v))
        for state, is_far in (("Prepare", True), ("Complete", False)):
            for committed in (True, False):
                title = f"{state}{'Commit' if committed else 'Abort'} by version {version}"
                options = {"committed": committed, "is_far": is_far}
                await table.fill(title, lambda name, v=version, o=options: table.ended(name, v, **o), held=is_far)
    await fill_taken_over(table, "")
    await table.set_transaction_version(1)
    await fill_taken_over(table, " while transaction.version is 1")


async def fill_taken_over(table: Table, rest: str) -> None:
    """The coordinator itself aborts as the version that the cluster has decided on says."""
    for version in (1, 2):
        for state, is_far in (("Prepare", True), ("Complete", False)):
            title = f"{state}Abort of version {version} by a new instance{rest}"
            await table.fill(title, lambda name, v=version, f=is_far: table.taken_over(name, v, is_far=f), held=is_far)


async def fill_last_epoch(table: Table, use_up: Callable[[list[str]], Awaitable[None]]) -> None:
    """Where no epoch is left the producer gets a new id. `use_up` brings transactional ids to LAST_EPOCH."""
    names = ["held", "ended", "taken over", "named", "unnamed"]
    producers = {name: await table.init(name) for name in names}
    await use_up(names)
    for producer in producers.values():
        producer.epoch = LAST_EPOCH
    for name in names[:3]:
        await table.begin(producers[name], 2, is_far=name == "held")
    asking = table.asking
    for name in ("held", "ended"):
        before = producers[name]
        after = copy(before)

        async def commit(label: str, after: Producer = after) -> None:
            answer = await asking.ask(label, table.end_request(after, committed=True), 5)
            after.producer_id, after.epoch = answer.producer_id, answer.producer_epoch

        row = {"current": await table.cell(commit, before, held=name == "held")}
        table.rows[f"the last epoch, {name}: commit v5"] = row
        await _ask_rotated(table, name, before, after)
    init_named = REQUESTS["init v5"]
    init_anew = REQUESTS["init of a new instance v5"]
    for name, send in (("named", init_named), ("unnamed", init_anew), ("taken over", init_anew)):
        table.rows[f"the last epoch, {name}: init v5"] = {
            time: await table.cell(
                lambda label, send=send, who=producers[name]: send(asking, label, who), producers[name]
            )
            for time in ("first", "again", "once more")
        }


async def _ask_rotated(table: Table, name: str, before: Producer, after: Producer) -> None:
    who = {
        "told": after,
        "before": before,
        "the epoch of its markers": Producer(name, before.producer_id, before.epoch + 1),
        "newer": Producer(name, after.producer_id, after.epoch + 1),
    }
    # The complete one is only asked what changes nothing.
    requests = (
        REQUESTS if name == "held" else {each: REQUESTS[each] for each in ("commit v5", "commit v4", "verify v5")}
    )
    for request, send in requests.items():
        table.rows[f"the last epoch, {name}: then {request}"] = {
            each: await table.cell(
                lambda label, send=send, asker=asker: send(table.asking, label, copy(asker)),
                before,
                held=name == "held",
            )
            for each, asker in who.items()
            if request not in _ALONE or each == "told"
        }


async def _use_up(port: int, asking: Asking, names: list[str]) -> None:
    """By as many InitProducerId, of all at once: half a minute and more."""

    async def use_up(name: str) -> None:
        peer = Peer(*await asyncio.open_connection("127.0.0.1", port))
        epoch = 0
        while epoch < LAST_EPOCH:
            request = InitProducerIdRequest(transactional_id=asking.name(name), transaction_timeout_ms=_TIMEOUT_MS)
            epoch = max(epoch, (await peer.request(request, 5)).producer_epoch)
        await peer.close()

    await asyncio.gather(*map(use_up, names))


async def _record(folder: Path) -> None:
    from bench.maven import bring_jars
    from tests.apache_kafka import ApacheKafka

    class_path = f"{bring_jars(Path('tests/compat/java/pom.xml'), 'compat-java')}/*"
    (folder / "1").mkdir()
    (folder / "2").mkdir()
    with ApacheKafka(class_path, folder / "1", settings=SETTINGS) as kafka:
        host, port = kafka.bootstrap.split(":")
        peer = Peer(*await asyncio.open_connection(host, int(port)))
        table = Table(peer, f"-{os.urandom(4).hex()}")
        await table.asking.prepare()
        with ApacheKafka(class_path, folder / "2", node_id=2, controller=kafka.controller) as other:

            async def stop() -> None:
                other.kill()

            await table.prepare(far=2, stop_far=stop)
        await fill_last_epoch(table, partial(_use_up, int(port), table.asking))
        await fill_all(table)
        await peer.close()
    lines = [f"{json.dumps(name)}: {json.dumps(row)}" for name, row in table.rows.items()]
    print("{\n" + ",\n".join(lines) + "\n}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as temporary:
        asyncio.run(asyncio.wait_for(_record(Path(temporary)), 900))
