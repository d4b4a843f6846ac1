"""A topic that was deleted and created anew under its name is another topic: its offsets begin again, and those of a
checkpoint say nothing of it.

Offsets alone do not show it once the new topic has grown beyond what was read of the old one. Ids do. They are those
that the option `topicIds` names, and of other topics those that a query saw first.
"""

from __future__ import annotations

from collections.abc import Mapping

from tailrace.model.ids import ZERO_UUID, Uuid, uuid_text
from tailrace.spark.source.loss import LossReport


class KnownTopics:
    def __init__(self, given: Mapping[str, Uuid], losses: LossReport) -> None:
        self.ids = dict(given)
        self._losses = losses

    def check(self, found: Mapping[str, Uuid]) -> None:
        """Raises DataLossError, or tells once. Brokers of old give no ids, and topics without are not judged."""
        for topic, topic_id in sorted(found.items()):
            if topic_id == ZERO_UUID:
                continue
            known = self.ids.setdefault(topic, topic_id)
            if topic_id != known:
                self._losses.add(
                    f"topic {topic} was deleted and created anew: its id was {uuid_text(known)} and is "
                    f"{uuid_text(topic_id)}. What was not read of the old one is lost, and of the new one what lies "
                    "below the offsets of the checkpoint is not read; to read it all, give the query a new checkpoint"
                )
                self.ids[topic] = topic_id
