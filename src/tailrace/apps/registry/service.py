"""One registry: its state, the topic behind it, and whether it is the one who writes.

Reads are answered from memory. A write goes through `write`: one at a time, decided on a state that has everything this
writer and those before it have written, and answered once it was read back from the topic. After a write whose outcome
is not known, or in which another writer shows, the term is over: the next one begins by taking over anew, if this
registry is still the one that is elected.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from tailrace.apps.registry import errors
from tailrace.apps.registry.settings import RegistrySettings
from tailrace.apps.registry.state.deciding import (
    Judgement,
    NewSchema,
    Question,
    Registered,
    check_may_register,
    decide_registration,
    find_registered,
    judge,
    prepare_registration,
)
from tailrace.apps.registry.state.deleting import Decided
from tailrace.apps.registry.state.parsing import Parsed, Source, source_of
from tailrace.apps.registry.state.policy import NO_POLICY
from tailrace.apps.registry.state.records import Record
from tailrace.apps.registry.state.store import State, Version
from tailrace.apps.registry.topic.election import Election, Identity
from tailrace.apps.registry.topic.making import ensure_topic
from tailrace.apps.registry.topic.reading import Reader
from tailrace.apps.registry.topic.writing import FENCED, Writer
from tailrace.client.metadata import Cluster
from tailrace.model import events
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ports import Background
from tailrace.schemas import Limits, ParsedSchema

_log = events.logger("registry")
T = TypeVar("T")


class NotWriterError(Exception):
    """Another registry writes; or none, then there is no identity."""

    def __init__(self, writer: Identity | None) -> None:
        super().__init__("another registry writes")
        self.writer = writer


class Registry:
    """`start` it, and `close` it at the end. `reading` has connections of its own: a broker answers a connection in
    order, and a write must not wait behind a fetch that waits for it."""

    def __init__(
        self,
        cluster: Cluster,
        reading: Cluster,
        settings: RegistrySettings,
        identity: Identity,
        background: Background,
    ) -> None:
        """`background` parses and compares."""
        self.cluster = cluster
        self.settings = settings
        self.identity = identity
        self.state = State(compatibility=settings.compatibility, references_depth_max=settings.references_depth_max)
        # Who writes, as the group has it; and whoever waits for another.
        self.leader: Identity | None = None
        self._leader_changed = asyncio.Event()
        self.is_writer = False
        self.reader = Reader(reading, settings.topic, self.state)
        self._election = Election(cluster, settings, identity, self._on_elected)
        self._writer: Writer | None = None  # Of the present term.
        self._writing = asyncio.Lock()
        self._waiting = 0
        self._parsed = Parsed(settings.cache_size, Limits(settings.nesting_max, settings.pairs_max))
        self._background = background
        self._elected = asyncio.Event()
        self._beginning: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Returns when it can answer reads, and knows who writes or has waited for it in vain."""
        timeout_s = self.settings.init_timeout_ms / 1000
        async with asyncio.timeout(timeout_s):
            await ensure_topic(self.cluster, self.settings)
            begun_ms = self.cluster.ports.clock.monotonic_ms()
            await self.reader.start()
        took_ms = round(self.cluster.ports.clock.monotonic_ms() - begun_ms, 1)
        _log.info("has read the topic", versions=self.state.version_count, damaged=self.reader.damaged, took_ms=took_ms)
        self._election.start()
        try:
            async with asyncio.timeout(timeout_s):
                await self._elected.wait()
        except TimeoutError:
            _log.warning("no writer was elected yet", group=self.settings.group_id)

    async def leave(self) -> None:
        """Writes no more, and lets another do it."""
        async with self._writing:
            self.is_writer, self._writer = False, None
        await self._election.close()

    async def close(self) -> None:
        await self._election.close()
        if self._beginning is not None:
            self._beginning.cancel()
        await self.reader.close()

    # --- who writes

    def _on_elected(self, writer: Identity | None, is_own: bool) -> None:
        if writer != self.leader or is_own != self.is_writer:
            _log.info("a writer is elected", writer=writer.url if writer else "none", own=is_own)
        if writer != self.leader:
            self.leader = writer
            self._leader_changed.set()
            self._leader_changed = asyncio.Event()
        if not is_own:
            self.is_writer, self._writer = False, None
        elif not self.is_writer:
            self.is_writer = True
            # Taken over before somebody asks, so that nobody waits for it, and an older writer is shut out now.
            self._beginning = asyncio.create_task(self._begin())
            return
        self._elected.set()

    async def wait_leader_change(self) -> None:
        await self._leader_changed.wait()

    async def _begin(self) -> None:
        try:
            async with self._writing:
                await self._term()
        except (errors.RegistryError, NotWriterError) as error:
            _log.warning("could not take over yet", cause=str(error))
        finally:
            self._elected.set()

    async def _term(self) -> Writer:
        """The writer of the present term, which is begun if there is none. Under the lock."""
        if not self.is_writer:
            raise NotWriterError(self.leader)
        if not self._election.is_recent:
            raise NotWriterError(None)
        if self._writer is not None:
            return self._writer
        settings = self.settings
        writer = Writer(
            self.cluster,
            self.reader.partition,
            f"{settings.group_id}-{settings.topic}",
            settings.store_timeout_ms,
        )
        try:
            async with asyncio.timeout(settings.store_timeout_ms / 1000):
                offset = await writer.take_over()
                await self.reader.wait_read(offset)
        except TimeoutError:
            raise errors.timed_out("Taking over as the writer timed out: the brokers do not answer") from None
        except KafkaError as error:
            raise self._failure(error) from None
        if not self.is_writer:
            raise NotWriterError(self.leader)
        _log.info("writes now", topic=settings.topic, offset=offset)
        self._writer = writer
        return writer

    # --- writing

    async def write(self, decide: Callable[[], Decided]) -> Any:
        """The answer. Raises NotWriterError, or RegistryError."""
        async with _Turn(self):
            await self._term()
            decided = decide()
            await self._append(decided.records)
            return decided.answer

    async def register(self, subject: str, new: NewSchema, *, normalize: bool, force: bool) -> Version:
        async with _Turn(self):
            await self._term()
            check_may_register(self.state, subject, new.id)
            prepared = prepare_registration(self.state, subject, new, normalize=normalize)
            judgement = await self.judge(prepared.question)
            registered: Registered = decide_registration(
                self.state, subject, prepared, judgement, force=force, now_ms=self.cluster.ports.clock.wall_ms()
            )
            await self._append(registered.records)
            self._check_stands(registered.version)
            return registered.version

    async def _append(self, records: Sequence[Record]) -> None:
        if not records:
            return
        writer = await self._term()
        try:
            async with asyncio.timeout(self.settings.store_timeout_ms / 1000):
                offset = await writer.append(records)
                await self.reader.wait_read(offset)
        except TimeoutError:
            self._writer = None
            raise errors.timed_out("Write to the Kafka store timed out: whether it took place is not known") from None
        except KafkaError as error:
            self._writer = None
            raise self._failure(error) from None
        except BaseException:
            self._writer = None  # Whoever asked has gone, and what was under way may still arrive.
            raise

    def _check_stands(self, registered: Version) -> None:
        """The partition refuses older writers of this kind, but not registries of other kinds: one may have given the
        same id away, just before."""
        found = self.state.find(registered.subject, registered.version)
        if found is None or (found.id, found.guid) != (registered.id, registered.guid):
            self._writer = None
            raise errors.store_failed(
                f"Another registry has given away id {registered.id} or version {registered.version} at the same time: "
                "register it again"
            )

    def _failure(self, error: KafkaError) -> Exception:
        if error.code in FENCED:
            # To take over once more would shut out the one who was elected meanwhile: the group is asked first.
            _log.warning("another registry has taken over", cause=error.code.name)
            self.is_writer, self.leader = False, None
            self._election.hold_again()
            return NotWriterError(None)
        if error.code is ErrorCode.POLICY_VIOLATION:  # A mirror, until it is promoted; or it was handed over to one.
            return errors.not_permitted(f"The schemas are read-only here: {error.message}")
        if error.code is ErrorCode.MESSAGE_TOO_LARGE:
            return errors.schema_too_large()
        return errors.store_failed(f"Error while writing to the Kafka store: {error.message} ({error.code.name})")

    # --- schemas

    async def judge(self, question: Question) -> Judgement:
        return await self._in_thread(judge, question, self._parsed)

    async def parsed(self, source: Source) -> ParsedSchema:
        return await self._in_thread(self._parsed.get, source)

    async def formatted(self, version: Version, format_name: str) -> str:
        if not format_name.strip():
            return version.value.text
        return (await self.parsed(source_of(self.state, version))).formatted(format_name)

    async def find_exact(self, subject: str, new: NewSchema, *, normalize: bool) -> Version | None:
        """The version that is this schema to the letter, with the same metadata and rules."""
        if not new.text.strip() or not self.state.has_subjects(subject, deleted=False):
            return None
        prepared = prepare_registration(self.state, subject, new, normalize=normalize)
        judgement = await self.judge(prepared.question._replace(policy=NO_POLICY, earlier=()))
        return find_registered(self.state, subject, prepared.new, judgement, deleted=False)

    async def look_up(self, subject: str, new: NewSchema, *, normalize: bool, deleted: bool) -> Version | None:
        """The version of a subject that is this schema: as it was sent, or with what the version before it had. A
        schema that is written otherwise is found by comparing it with all."""
        versions = self.state.versions(subject, deleted=deleted)
        if not new.text.strip():
            return None
        prepared = prepare_registration(self.state, subject, new, normalize=normalize)
        question = prepared.question._replace(policy=NO_POLICY, earlier=())
        everything = tuple((each.version, source_of(self.state, each)) for each in reversed(versions))
        for asked in (question, question._replace(earlier=everything)):
            judgement = await self.judge(asked)
            for wanted in (new, prepared.new):
                if found := find_registered(self.state, subject, wanted, judgement, deleted=deleted):
                    return found
        return None

    async def _in_thread(self, work: Callable[..., T], *arguments: Any) -> T:
        return await self._background.run(lambda: work(*arguments))


class _Turn:
    """One write at a time, and a bounded number that waits."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    async def __aenter__(self) -> None:
        registry = self._registry
        if not registry.is_writer:
            raise NotWriterError(registry.leader)
        if registry._waiting >= registry.settings.writes_waiting_max:
            raise errors.timed_out(f"{registry._waiting} writes wait already: try again later")
        registry._waiting += 1
        try:
            await registry._writing.acquire()
        except BaseException:
            registry._waiting -= 1
            raise

    async def __aexit__(self, *_: object) -> None:
        self._registry._writing.release()
        self._registry._waiting -= 1
