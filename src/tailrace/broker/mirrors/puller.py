"""Fetches from one broker of the source, for all mirrors that it leads there and this broker leads here.

    round     one Fetch, as a consumer: whole batches up to the source's high watermark, and none above; one session, as
              long as nothing fails (KIP-227)
    behind    OFFSET_OUT_OF_RANGE: the source has deleted what comes next, and the mirror goes on where that begins
    parted    the source has another history than what is here: the partition stops, and an operator decides; then it
              is cut, perhaps (`cutting`)

A connection of its own, for a fetch that is parked at the source holds up whatever comes after it. Never decides what
is mirrored, nor writes past what `pulled` lets through.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from tailrace.broker.mirrors.cutting import cut_mirror, is_to_be_cut
from tailrace.broker.mirrors.pulled import Pulled
from tailrace.client.connection import error_code
from tailrace.client.fetching import Isolation, records_of
from tailrace.client.offsets import EARLIEST, LATEST, NO_SUCH_RECORD, list_offsets
from tailrace.controller.mirrors import settings as names
from tailrace.model import events
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import NO_EPOCH, ZERO_UUID
from tailrace.replica.leading import mirrors
from tailrace.wire.apis.data import (
    FetchRequest,
    FetchResponse,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
)
from tailrace.wire.records import HEADER_SIZE, read_header

if TYPE_CHECKING:
    from tailrace.broker.mirrors.room import LinkRoom
    from tailrace.client.connection import Connection
    from tailrace.model.ids import NodeId
    from tailrace.replica.partition import Partition

_log = events.logger("mirror")

Key = tuple[str, int]

# The first version that names topics by their ids, and the first in which a Fetch tells where histories part.
_BY_ID, _TELLS_DIVERGENCE = 13, 12
_IDLE_SECONDS = 0.1
_FIRST_PAUSE_MS, _PAUSE_MAX_MS = 50.0, 5000.0
# Bytes taken before the loop turns: about a millisecond.
_BYTES_PER_TURN = 1 << 20
_QUESTION_TIMEOUT_MS = 10_000
_EPOCH_MAX, _NO_SESSION = 0x7FFFFFFF, -1

_SESSION_ERRORS = (
    ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
    ErrorCode.INVALID_FETCH_SESSION_EPOCH,
    ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
)
# Somebody else leads by now, or will soon.
_MOVED = (
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.INCONSISTENT_TOPIC_ID,
)


class Puller:
    def __init__(self, room: LinkRoom, source_node: NodeId) -> None:
        self.pulled: dict[Key, Pulled] = {}
        self._room = room
        self._source_node = source_node
        self._wakeup = asyncio.Event()
        # The session: what the source was told of each partition.
        self._session_id = self._session_epoch = 0
        self._told: dict[Key, int] = {}
        self._task = asyncio.get_running_loop().create_task(self._run(), name=f"mirror from {source_node}")

    def wake(self) -> None:
        self._wakeup.set()

    async def close(self) -> None:
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task

    # ---- rounds

    async def _run(self) -> None:
        failures = 0
        while True:
            connection: Connection | None = None
            try:
                connection = await self._room.open_connection(self._source_node)
                self._reset_session()
                while connection.is_open:
                    await self._round(connection)
                    failures = 0
            except KafkaError as error:
                self._fail_all(error, failures)
            except Exception as error:
                _log.error("a puller failed", trace=True, link=self._room.link.name, source=self._source_node)
                self._room.node.judge_bug(error)
            finally:
                if connection is not None:
                    connection.close()
            self._room.look_again()
            await asyncio.sleep(min(_PAUSE_MAX_MS, _FIRST_PAUSE_MS * (1 << min(failures, 10))) / 1000)
            failures += 1

    def _fail_all(self, error: KafkaError, failures: int) -> None:
        if failures == 0:
            _log.warning("a broker of the source cannot be read", link=self._room.link.name, cause=error.message)
        for pulled in self.pulled.values():
            pulled.problem = pulled.problem if pulled.is_stopped else error.message

    async def _round(self, connection: Connection) -> None:
        self._wakeup.clear()
        now_ms = self._room.now_ms()
        ready = {key: each for key, each in self.pulled.items() if each.is_ready(now_ms)}
        for each in list(ready.values()):
            if not each.is_begun:
                await self._begin(each)
        ready = {key: each for key, each in ready.items() if each.is_begun and not each.is_stopped}
        version = self._version(connection, ready)
        if version < _TELLS_DIVERGENCE:
            await self._verify(connection, ready)
            ready = {key: each for key, each in ready.items() if not each.is_stopped}
        if version < _BY_ID:
            await self._recognize(connection, ready)
            ready = {key: each for key, each in ready.items() if each.is_recognized}
        if not ready:
            with suppress(TimeoutError):
                async with asyncio.timeout(_IDLE_SECONDS):
                    await self._wakeup.wait()
            return
        config = self._room.node.config
        request = self._build_request(ready, version)
        patience_ms = config.replica_fetch_wait_max_ms + config.request_timeout_ms
        response = await connection.call(request, FetchResponse, version_max=version, timeout_ms=patience_ms)
        code = error_code(response.error_code)
        if code in _SESSION_ERRORS:
            self._reset_session()
            return
        if code is not ErrorCode.NONE:
            raise KafkaError(code, f"broker {self._source_node} of the source answers a fetch with {code.name}")
        self._session_id = response.session_id
        self._session_epoch = 0 if not self._session_id else self._session_epoch % _EPOCH_MAX + 1
        taken_bytes = await self._take_all(response)
        now_ms = self._room.now_ms()
        for each in ready.values():
            each.note_silence(now_ms)
        await self._room.wait_for_room(taken_bytes)

    def _version(self, connection: Connection, ready: dict[Key, Pulled]) -> int:
        newest = connection.version_of(FetchRequest)
        has_ids = all(each.source_topic_id != ZERO_UUID for each in ready.values())
        return newest if has_ids else min(newest, _BY_ID - 1)

    # ---- the request

    def _reset_session(self) -> None:
        self._session_id = self._session_epoch = 0
        self._told = {}

    def _build_request(self, ready: dict[Key, Pulled], version: int) -> FetchRequest:
        if not self._session_epoch:
            self._told = {}
        topics: dict[str, FetchRequest.FetchTopic] = {}
        for key, pulled in ready.items():
            log = pulled.partition.log
            pulled.asked_offset, pulled.asked_epoch = log.log_end_offset, pulled.partition.leader_epoch
            if self._told.get(key) == pulled.asked_offset:
                continue
            self._told[key] = pulled.asked_offset
            topic = topics.setdefault(key[0], FetchRequest.FetchTopic(topic=key[0], topic_id=pulled.source_topic_id))
            topic.partitions.append(
                FetchRequest.FetchPartition(
                    partition=key[1],
                    current_leader_epoch=self._room.source_epoch(pulled),
                    fetch_offset=log.log_end_offset,
                    last_fetched_epoch=log.epochs.latest if log.log_end_offset > log.log_start_offset else NO_EPOCH,
                    partition_max_bytes=self._room.node.config.replica_fetch_max_bytes,
                )
            )
        forgotten: dict[str, FetchRequest.ForgottenTopic] = {}
        for name, index in [key for key in self._told if key not in ready]:
            del self._told[name, index]
            known = self.pulled.get((name, index))
            topic_id = known.source_topic_id if known is not None else self._room.source_topic_id(name)
            gone = forgotten.setdefault(name, FetchRequest.ForgottenTopic(topic=name, topic_id=topic_id))
            gone.partitions.append(index)
        if version >= _BY_ID and any(each.topic_id == ZERO_UUID for each in forgotten.values()):
            self._reset_session()  # Their topic is gone, and its id with it.
            return self._build_request(ready, version)
        config = self._room.node.config
        return FetchRequest(
            max_wait_ms=config.replica_fetch_wait_max_ms,
            min_bytes=config.replica_fetch_min_bytes,
            max_bytes=config.replica_fetch_response_max_bytes,
            session_id=self._session_id,
            session_epoch=self._session_epoch,
            topics=list(topics.values()),
            forgotten_topics_data=list(forgotten.values()),
        )

    # ---- the answer

    async def _take_all(self, response: FetchResponse) -> int:
        by_id = {bytes(each.source_topic_id): key[0] for key, each in self.pulled.items()}
        taken_bytes = turn_bytes = 0
        for topic in response.responses:
            name = topic.topic or by_id.get(bytes(topic.topic_id), "")
            for data in topic.partitions:
                pulled = self.pulled.get((name, data.partition_index))
                if pulled is None or pulled.is_stopped:
                    continue
                count = await self._take(pulled, data)
                taken_bytes += count
                turn_bytes += count
                if turn_bytes >= _BYTES_PER_TURN:
                    turn_bytes = 0
                    await asyncio.sleep(0)
        return taken_bytes

    async def _take(self, pulled: Pulled, data: FetchResponse.PartitionData) -> int:
        """Gives the bytes written. What fails rests; the others go on."""
        code = error_code(data.error_code)
        try:
            if code is ErrorCode.OFFSET_OUT_OF_RANGE:
                await self._find_range(pulled)
            elif code is not ErrorCode.NONE:
                raise KafkaError(code, f"the source says {code.name}")
            elif data.diverging_epoch.epoch >= 0:
                await self._part(pulled, data.diverging_epoch.epoch, data.diverging_epoch.end_offset)
            else:
                now_ms = self._room.now_ms()
                taken = pulled.take(
                    records_of(data),
                    high_watermark=data.high_watermark,
                    log_start_offset=data.log_start_offset,
                    now_ms=now_ms,
                )
                if pulled.needed_epoch > pulled.partition.leader_epoch:
                    self._room.ask_for_epoch(pulled)
                return taken
        except KafkaError as error:
            self._rest(pulled, error)
        return 0

    def _rest(self, pulled: Pulled, error: KafkaError) -> None:
        if pulled.failures == 0:
            cause, partition = error.message, pulled.partition.topic_partition
            _log.info("a mirror is tried again later", partition=partition, cause=cause)
        self._told[pulled.source] = -1  # It leaves the session until it is asked for again.
        pulled.problem = error.message
        pause_ms = min(_PAUSE_MAX_MS, _FIRST_PAUSE_MS * (1 << min(pulled.failures, 10)))
        pulled.rests_until_ms = self._room.now_ms() + pause_ms
        pulled.failures += 1
        if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            pulled.is_recognized = False
        if error.code in _MOVED:
            self._room.look_again()

    # ---- where it begins, and where it cannot go on

    async def _begin(self, pulled: Pulled) -> None:
        """Nothing was mirrored yet."""
        try:
            start, start_offset = self._room.settings.start, self._room.settings.start_offset
            wanted = {names.EARLIEST: EARLIEST, names.LATEST: LATEST}.get(str(start), start)
            offset = await self._ask_offset(pulled, EARLIEST if start_offset >= 0 else int(wanted))
            if start_offset > offset:
                offset = min(start_offset, await self._ask_offset(pulled, LATEST))
            if offset == NO_SUCH_RECORD:
                offset = await self._ask_offset(pulled, LATEST)
            log = pulled.partition.log
            if log.log_end_offset == 0 and offset > 0:
                await self._begin_at(pulled.partition, offset)
            pulled.is_begun = True
        except KafkaError as error:
            self._rest(pulled, error)

    async def _find_range(self, pulled: Pulled) -> None:
        """The source has nothing at our log end. Raises KafkaError."""
        start, end = await self._ask_offset(pulled, EARLIEST), await self._ask_offset(pulled, LATEST)
        partition = pulled.partition
        log_end = partition.log.log_end_offset
        if pulled.asked_offset != log_end:
            return
        if start > log_end and is_to_be_cut(self._room, pulled):
            pulled.stop(
                f"the source begins at offset {start}, behind the end of what is here ({log_end}): where they part "
                "cannot be found. Delete the topic here to mirror it from there"
            )
        elif start > log_end:
            _log.warning(
                "the source has deleted records before they were mirrored",
                partition=partition.topic_partition,
                start_offset=log_end,
                end_offset=start,
            )
            await self._begin_at(partition, start)
        elif end < log_end and is_to_be_cut(self._room, pulled):
            await self._cut(pulled, end)
        elif end < log_end:
            pulled.stop(
                f"the source ends at offset {end}, and here is what it had up to {log_end}: it has lost offsets {end} "
                f"to {log_end - 1}, or was made anew. Nothing is mirrored any more. Fail this topic over to keep what "
                "is here, or delete it here to mirror it from the beginning"
            )
        else:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE, f"the source does not give offset {log_end} at the moment")

    async def _begin_at(self, partition: Partition, offset: int) -> None:
        mirrors.begin_at(partition, offset, leader_epoch=partition.leader_epoch)
        if partition.tier is not None:
            await partition.tier.store_start()  # Else a restart would look for what lies before in the store.

    async def _ask_offset(self, pulled: Pulled, timestamp: int) -> int:
        cluster = self._room.cluster
        where = pulled.source
        found = await list_offsets(
            cluster, {where: timestamp}, isolation=Isolation.READ_UNCOMMITTED, timeout_ms=_QUESTION_TIMEOUT_MS
        )
        return found[where]

    async def _part(self, pulled: Pulled, epoch: int, end_offset: int) -> None:
        """The source has this epoch up to there, and of what is here beyond the common point nothing."""
        log = pulled.partition.log
        known_epoch, known_end = log.epochs.end_offset_for(epoch, log.log_end_offset)
        common = end_offset if known_end < 0 else known_end if known_epoch != epoch else min(known_end, end_offset)
        common = max(0, min(common, log.log_end_offset))
        if is_to_be_cut(self._room, pulled):
            await self._cut(pulled, common)
            return
        pulled.stop(
            f"the histories part: of leader epoch {epoch} the source has records up to offset {end_offset}, and here "
            f"are others from {common} to {log.log_end_offset - 1} (leader epoch {log.epochs.latest}). The "
            "source has lost confirmed records, by an unclean election perhaps. Nothing is mirrored any more. Cut here "
            "what it has lost (tailrace mirror cut), fail this topic over to keep what is here, or delete it here to "
            "mirror it from the beginning"
        )
        _log.error("a mirror has parted from its source", partition=pulled.partition.topic_partition, epoch=epoch)

    async def _cut(self, pulled: Pulled, offset: int) -> None:
        """Raises KafkaError. It goes on in the leader epoch that begins with the cut."""
        pulled.is_agreeing = False
        await cut_mirror(self._room, pulled.partition, offset)
        self._told[pulled.source] = -1
        pulled.problem = f"it is cut at offset {offset}, behind which the source has other records"

    async def _verify(self, connection: Connection, ready: dict[Key, Pulled]) -> None:
        """Older brokers do not compare histories in a Fetch: they are asked once for each leader of theirs."""
        topics: dict[str, OffsetForLeaderEpochRequest.OffsetForLeaderTopic] = {}
        asked: dict[Key, tuple[Pulled, int]] = {}
        for key, pulled in ready.items():
            log, source_epoch = pulled.partition.log, self._room.source_epoch(pulled)
            if pulled.verified_epoch == source_epoch or log.epochs.latest == NO_EPOCH:
                continue
            asked[key] = pulled, source_epoch
            topic = topics.setdefault(key[0], OffsetForLeaderEpochRequest.OffsetForLeaderTopic(topic=key[0]))
            topic.partitions.append(
                OffsetForLeaderEpochRequest.OffsetForLeaderPartition(
                    partition=key[1], current_leader_epoch=source_epoch, leader_epoch=log.epochs.latest
                )
            )
        if not asked:
            return
        request = OffsetForLeaderEpochRequest(replica_id=-1, topics=list(topics.values()))
        response = await connection.call(request, OffsetForLeaderEpochResponse)
        for answer in response.topics:
            for data in answer.partitions:
                pulled, source_epoch = asked[answer.topic, data.partition]
                log = pulled.partition.log
                if data.error_code:
                    code = error_code(data.error_code)
                    self._rest(pulled, KafkaError(code, f"the source says {code.name}"))
                elif 0 <= data.end_offset < log.log_end_offset or -1 < data.leader_epoch < log.epochs.latest:
                    await self._part(pulled, data.leader_epoch, data.end_offset)
                else:
                    pulled.verified_epoch = source_epoch

    async def _recognize(self, connection: Connection, ready: dict[Key, Pulled]) -> None:
        """Older brokers give topics no ids: one that was made again would go on where the one before it ended. So the
        last batch that is here is looked for at the source. Of a compacted topic it may be another one by now."""
        for pulled in [each for each in ready.values() if not each.is_recognized]:
            log = pulled.partition.log
            is_kept = "compact" not in log.config.cleanup_policy and log.log_end_offset > log.log_start_offset
            piece = log.read(log.log_end_offset - 1, 1, end_offset=log.log_end_offset) if is_kept else None
            if piece is not None and piece.size:
                here = bytes((await self._room.node.ports.background.run(piece.read))[:HEADER_SIZE])
                try:
                    if not await self._is_there(connection, pulled, here):
                        continue
                except KafkaError as error:
                    self._rest(pulled, error)
                    continue
            pulled.is_recognized = True

    async def _is_there(self, connection: Connection, pulled: Pulled, here: bytes) -> bool:
        """Whether the source has the batch with this header, or has deleted it. Else the partition stops, or is cut.
        Raises KafkaError."""
        log_end = pulled.partition.log.log_end_offset
        base_offset = read_header(memoryview(here), 0).base_offset
        there = await self._header_at(connection, pulled, base_offset)
        if not there:
            if await self._ask_offset(pulled, EARLIEST) > base_offset:
                return True
            pulled.asked_offset = log_end
            await self._find_range(pulled)
            return False
        if there == here:
            return True
        pulled.verified_epoch = NO_EPOCH
        await self._verify(connection, {pulled.source: pulled})  # Leader epochs may tell where they part.
        if pulled.verified_epoch != NO_EPOCH:
            pulled.stop(
                f"the source has another batch before offset {log_end} than is here: the topic was deleted there and "
                "made again, perhaps. Fail this topic over to keep what is here, or delete it here to mirror it from "
                "the beginning"
            )
        return False

    async def _header_at(self, connection: Connection, pulled: Pulled, offset: int) -> bytes:
        """Empty if the source does not have that offset. Raises KafkaError."""
        name, index = pulled.source
        asked = FetchRequest.FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=HEADER_SIZE)
        request = FetchRequest(
            max_wait_ms=0, session_epoch=_NO_SESSION, topics=[FetchRequest.FetchTopic(topic=name, partitions=[asked])]
        )
        response = await connection.call(request, FetchResponse, version_max=_BY_ID - 1)
        (data,) = [each for topic in response.responses for each in topic.partitions]
        code = error_code(data.error_code)
        if code not in (ErrorCode.NONE, ErrorCode.OFFSET_OUT_OF_RANGE):
            raise KafkaError(code, f"the source says {code.name}")
        return bytes(records_of(data)[:HEADER_SIZE])
