"""The throttles of a run, set and taken away on the cluster, with the marks of `controller.partitions.throttles`.

    set       the lists of the topics, then the rate: a crash between them leaves a mark
    removed   the rate, then the lists
    found     all topics are asked, a hundred at a time

A rate for all brokers, or a list, that somebody else has set stays as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tailrace.client.admin import RESOURCE_TOPIC, Admin
from tailrace.client.connection import error_code
from tailrace.controller.partitions.throttles import (
    EVERYTHING,
    FOLLOWER_LIST,
    LEADER_LIST,
    LISTS,
    RATES,
    Mark,
    format_list,
    mark_of,
    parse_list,
)
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.ids import TopicPartition
from tailrace.wire.apis.admin import (
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

MIN_INSYNC = "min.insync.replicas"
_RESOURCE_BROKER = 4
_ALL_BROKERS = ""
_TOPICS_AT_ONCE = 100
_SET, _DELETE = 0, 1
_DYNAMIC_SOURCES = {RESOURCE_TOPIC: 1, _RESOURCE_BROKER: 3}

Resource = tuple[int, str]


class TopicSettings(NamedTuple):
    min_insync: int
    mark: Mark | None
    followers: frozenset[tuple[int, int]]  # Pairs of partition and broker whose copying the mark's run throttles.
    is_foreign: bool  # Somebody else throttles replicas of this topic.
    is_covered: bool  # Somebody else throttles all of them.


class Throttles:
    def __init__(self, admin: Admin, run: int) -> None:
        self._admin = admin
        self.run = run
        self._topics: set[str] = set()  # With lists of ours.
        self.sets_rate = True
        self._rate: int | None = None  # As it was set last.

    async def settings_of(self, topics: Sequence[str]) -> dict[str, TopicSettings]:
        """Of those that are there."""
        found: dict[str, TopicSettings] = {}
        for begin in range(0, len(topics), _TOPICS_AT_ONCE):
            chunk = topics[begin : begin + _TOPICS_AT_ONCE]
            for (_, name), settings in (await self._describe([(RESOURCE_TOPIC, each) for each in chunk])).items():
                mark = mark_of(settings)
                texts = {settings.get(each) or "" for each in LISTS}
                found[name] = TopicSettings(
                    int(settings.get(MIN_INSYNC) or 1),
                    mark,
                    frozenset(parse_list(settings.get(FOLLOWER_LIST))[0]),
                    is_foreign=mark is None and texts != {""},
                    is_covered=texts == {EVERYTHING},
                )
        return found

    async def find_marked(self, topics: Sequence[str]) -> dict[str, TopicSettings]:
        settings = await self.settings_of(topics)
        return {name: each for name, each in settings.items() if each.mark is not None}

    async def prepare(self, marks: Mapping[str, Mark]) -> None:
        """Whose the rate is. `marks` are what an earlier run has left: its rate is ours now, and ours is the later."""
        self.run = max([self.run, *(mark.run + 1 for mark in marks.values())])
        rates = (await self._describe([(_RESOURCE_BROKER, _ALL_BROKERS)])).get((_RESOURCE_BROKER, _ALL_BROKERS), {})
        has_rate = any(rates.get(each) for each in RATES)
        self.sets_rate = not has_rate or any(mark.sets_rate for mark in marks.values())
        self._topics |= marks.keys()

    async def throttle(
        self, moves: Mapping[TopicPartition, tuple[Sequence[int], Sequence[int]]], rate: int, *, again: bool = False
    ) -> None:
        """Of each partition on its way: the replicas that it had, and those that it gets. `again` sets what should be
        set already."""
        leaders: dict[str, set[tuple[int, int]]] = {}
        followers: dict[str, set[tuple[int, int]]] = {}
        for (topic, partition), (old, new) in moves.items():
            leaders.setdefault(topic, set()).update((partition, node) for node in old)
            followers.setdefault(topic, set()).update((partition, node) for node in new)
        if not leaders:
            await self.remove()
            return
        mark = Mark(self.run, self.sets_rate)
        self._topics |= leaders.keys()
        await self._alter(
            {
                (RESOURCE_TOPIC, topic): {
                    LEADER_LIST: format_list(pairs, mark),
                    FOLLOWER_LIST: format_list(followers[topic], mark),
                }
                for topic, pairs in leaders.items()
            }
        )
        if self.sets_rate and (again or self._rate != rate):
            await self._alter({(_RESOURCE_BROKER, _ALL_BROKERS): dict.fromkeys(RATES, str(rate))})
            self._rate = rate
        # At last, for some list has to say whose the rate is.
        over = sorted(self._topics - leaders.keys())
        await self._alter({(RESOURCE_TOPIC, topic): dict.fromkeys(LISTS) for topic in over})
        self._topics.difference_update(over)

    async def remove(self) -> None:
        """All that this run has set, or has taken over."""
        if not self._topics:
            return
        if self.sets_rate:
            await self._alter({(_RESOURCE_BROKER, _ALL_BROKERS): dict.fromkeys(RATES)})
            self._rate = None
        await self._alter({(RESOURCE_TOPIC, topic): dict.fromkeys(LISTS) for topic in sorted(self._topics)})
        self._topics.clear()

    async def _describe(self, resources: Sequence[Resource]) -> dict[Resource, dict[str, str | None]]:
        """What was set while the cluster runs, and min.insync.replicas from wherever it comes."""
        connection = await self._admin.cluster.any_connection()
        request = DescribeConfigsRequest(
            resources=[
                DescribeConfigsRequest.DescribeConfigsResource(
                    resource_type=kind, resource_name=name, configuration_keys=[*LISTS, *RATES, MIN_INSYNC]
                )
                for kind, name in resources
            ]
        )
        found: dict[Resource, dict[str, str | None]] = {}
        for result in (await connection.call(request, DescribeConfigsResponse)).results:
            code = error_code(result.error_code)
            if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                continue
            if code is not ErrorCode.NONE:
                raise KafkaError(code, f"the settings of {result.resource_name!r} are not told: {result.error_message}")
            source = _DYNAMIC_SOURCES[result.resource_type]
            found[result.resource_type, result.resource_name] = {
                each.name: each.value
                for each in result.configs
                if each.config_source == source or each.name == MIN_INSYNC
            }
        return found

    async def _alter(self, changes: Mapping[Resource, Mapping[str, str | None]]) -> None:
        """None takes a setting away. A topic that was deleted meanwhile needs nothing."""
        if not changes:
            return
        request = IncrementalAlterConfigsRequest(
            resources=[
                IncrementalAlterConfigsRequest.AlterConfigsResource(
                    resource_type=kind,
                    resource_name=name,
                    configs=[
                        IncrementalAlterConfigsRequest.AlterableConfig(
                            name=setting, config_operation=_DELETE if value is None else _SET, value=value
                        )
                        for setting, value in settings.items()
                    ],
                )
                for (kind, name), settings in changes.items()
            ],
            validate_only=False,
        )
        connection = await self._admin.cluster.any_connection()
        for result in (await connection.call(request, IncrementalAlterConfigsResponse)).responses:
            code = error_code(result.error_code)
            if code not in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
                what = result.resource_name or "all brokers"
                raise KafkaError(code, f"the throttle of {what} was not set: {result.error_message or ''}")
