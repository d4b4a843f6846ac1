"""Random lives of a group: members join, leave, stall, lose answers and change subscriptions, topics grow, and the
coordinator dies. At no time do two live members hold a partition, and when all is quiet every partition has an owner.
"""

import random
from itertools import pairwise

import pytest

from tailrace.model.errors import ErrorCode, KafkaError
from tests.unit.coordinator.consumers.scene import HEARTBEAT_MS, REBALANCE_MS, SESSION_MS, Scene, told
from tests.unit.coordinator.scene import Asked

REGEX = "[tu]"
_EXPECTED = {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNRELEASED_INSTANCE_ID}


class Client:
    """Does what a consumer does with its answers: gives up first, and says so with its next heartbeat."""

    def __init__(self, scene: Scene, member_id: str, topics: list[str], instance_id: str | None) -> None:
        self.scene = scene
        self.member_id = member_id
        self.instance_id = instance_id
        self.topics = topics
        self.epoch = 0
        self.owned: dict[str, set[int]] = {}
        # What it was told to have. While it is busy with records it goes on with what it has, and says so.
        self.target: dict[str, set[int]] = {}
        self.is_busy = False
        self.heard_ms = scene.monotonic_ms
        self.pending: tuple[Asked, float] | None = None
        # An answer was lost: it tells all with its next heartbeat, and is told all.
        self.is_unsure = False

    @property
    def is_live(self) -> bool:
        return self.scene.monotonic_ms < self.heard_ms + SESSION_MS

    def beat(self, *, is_lost: bool = False) -> None:
        fields = {"instance_id": self.instance_id}
        sent_ms = self.scene.monotonic_ms
        try:
            if self.epoch == 0:
                self.owned, self.target = {}, {}
                regex = {"subscribed_topic_regex": REGEX} if not self.topics else {}
                asked = self.scene.join(self.member_id, *self.topics, **fields, **regex)
            else:
                regex = {"subscribed_topic_regex": REGEX} if not self.topics else {"subscribed_topic_regex": ""}
                full = {"rebalance_timeout_ms": REBALANCE_MS} if self.is_unsure else {}
                asked = self.scene.beat(
                    self.member_id,
                    self.epoch,
                    self.owned,
                    subscribed_topic_names=self.topics,
                    **fields,
                    **regex,
                    **full,
                )
        except KafkaError as error:
            if error.code not in _EXPECTED:
                raise
            if error.code is not ErrorCode.UNRELEASED_INSTANCE_ID:
                self.epoch, self.owned, self.target = 0, {}, {}
            return
        self.pending = None if is_lost else (asked, sent_ms)
        self.is_unsure = is_lost
        self.hear()

    def hear(self) -> None:
        """An answer may come later."""
        if self.pending is None or self.pending[0].is_waiting:
            return
        asked, sent_ms = self.pending
        self.pending = None
        if asked.error is not ErrorCode.NONE:
            self.epoch, self.owned, self.target = 0, {}, {}
            return
        self.heard_ms = sent_ms
        self.epoch = asked.answer.member_epoch
        if asked.answer.assignment is not None:
            self.target = told(asked)
        if not self.is_busy:
            self.owned = self.target


class Life:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.sizes = {"t": 3, "u": 2}
        self.scene = Scene(self.sizes)
        self.clients: list[Client] = []
        self.born = 0

    def step(self) -> None:
        chance = self.random.random()
        client = self.random.choice(self.clients) if self.clients else None
        if client is None or (chance < 0.12 and len(self.clients) < 6):
            self._join()
        elif chance < 0.17:
            self._leave(client)
        elif chance < 0.19:
            self.clients.remove(client)  # It is killed.
        elif chance < 0.22:
            client.topics = self._topics()
        elif chance < 0.24:
            self._grow()
        elif chance < 0.26:
            self.scene.fail_over()
            for each in self.clients:
                each.pending, each.is_unsure = None, True
        elif chance < 0.35:
            self.scene.pass_ms(self.random.choice([100, 900, HEARTBEAT_MS, SESSION_MS / 2]))
        else:
            client.is_busy = self.random.random() < 0.3
            client.beat(is_lost=self.random.random() < 0.1)
        for each in self.clients:
            each.hear()
        self.check_owners()

    def check_owners(self) -> None:
        held = sorted(
            (topic, partition)
            for client in self.clients
            if client.is_live
            for topic, partitions in client.owned.items()
            for partition in partitions
        )
        assert all(one != other for one, other in pairwise(held)), held

    def settle(self) -> None:
        """Long enough for those who were killed to time out."""
        for _ in range(25):
            self.scene.pass_ms(HEARTBEAT_MS)
            for client in self.clients:
                client.is_busy = False
                client.hear()
                if client.pending is None:
                    client.beat()
                client.hear()
                self.check_owners()

    def _join(self) -> None:
        self.born += 1
        instance_id = f"i{self.random.randrange(3)}" if self.random.random() < 0.3 else None
        if any(client.instance_id == instance_id is not None for client in self.clients):
            return
        client = Client(self.scene, f"m{self.born}", self._topics(), instance_id)
        self.clients.append(client)
        client.beat()

    def _leave(self, client: Client) -> None:
        self.clients.remove(client)
        epoch = -2 if client.instance_id is not None and self.random.random() < 0.7 else -1
        self.scene.refusal(client.member_id, epoch, instance_id=client.instance_id)

    def _topics(self) -> list[str]:
        return self.random.choice([["t"], ["u"], ["t", "u"], []])

    def _grow(self) -> None:
        topic = self.random.choice(sorted(self.sizes))
        self.sizes = {**self.sizes, topic: self.sizes[topic] + 1}
        self.scene.set_topics(self.sizes)


@pytest.mark.parametrize("seed", range(20))
def test_one_owner_at_any_time_and_all_partitions_in_the_end(seed):
    life = Life(seed)
    for _ in range(60):
        life.step()
    life.settle()
    if not life.clients:
        return
    group = life.scene.group
    assert group.state_name == "Stable", (group.epoch, group.assignment_epoch, group.members)
    assert set(group.members) == {client.member_id for client in life.clients}
    wanted = {
        (topic, partition)
        for client in life.clients
        for topic in client.topics or ["t", "u"]
        for partition in range(life.sizes[topic])
    }
    held = {
        (topic, partition)
        for client in life.clients
        for topic, partitions in client.owned.items()
        for partition in partitions
    }
    assert held == wanted
