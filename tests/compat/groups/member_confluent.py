"""A member of librdkafka: `python -m tests.compat.groups.member_confluent BOOTSTRAP GROUP TOPIC SETTINGS`, where the
settings are JSON, and "subscription" is what it subscribes to instead of the topic."""

import json
import sys

from confluent_kafka import Consumer, KafkaException, TopicPartition

from tests.compat.groups.journal import Journal

SETTINGS = {
    "enable.auto.commit": False,
    "auto.offset.reset": "earliest",
    "fetch.wait.max.ms": 50,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
    "retry.backoff.ms": 20,
    "fetch.queue.backoff.ms": 10,
    "topic.metadata.refresh.interval.ms": 500,
    "log_level": 2,
}
CLASSIC = {"heartbeat.interval.ms": 100, "session.timeout.ms": 4000}


class Member:
    def __init__(self, bootstrap: str, group: str, topic: str, settings: dict[str, object]) -> None:
        self._topic = topic
        self._journal = Journal()
        subscription = str(settings.pop("subscription", topic))
        of_protocol = {} if settings.get("group.protocol") == "consumer" else CLASSIC
        self._consumer = Consumer(
            {**SETTINGS, **of_protocol, "bootstrap.servers": bootstrap, "group.id": group, **settings}
        )
        self._consumer.subscribe(
            [subscription], on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
        )

    def run(self) -> None:
        while not self._journal.closing.is_set():
            records = []
            for message in self._consumer.consume(200, timeout=0.05):
                if message.error() is None:
                    records.append((message.partition(), message.offset(), message.value()))
                else:
                    self._journal.write("said", str(message.error()))
            if records:
                self._journal.read(records)
            if self._journal.is_commit_due():
                self._commit()
        self._commit()
        self._journal.gave_all_back()
        self._consumer.close()

    def _commit(self) -> None:
        positions = dict(self._journal.positions)
        if not positions:
            return
        wanted = [TopicPartition(self._topic, partition, offset) for partition, offset in positions.items()]
        try:
            answers = self._consumer.commit(offsets=wanted, asynchronous=False)
        except KafkaException as error:
            self._journal.refused(error)
            return
        self._journal.committed({each.partition: each.offset for each in answers if each.error is None})

    def _on_assign(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self._journal.assigned(each.partition for each in partitions)

    def _on_revoke(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self._commit()
        self._journal.gave_back(each.partition for each in partitions)

    def _on_lost(self, _: Consumer, partitions: list[TopicPartition]) -> None:
        self._journal.gave_back((each.partition for each in partitions), is_lost=True)


if __name__ == "__main__":
    Member(*sys.argv[1:4], json.loads(sys.argv[4])).run()
