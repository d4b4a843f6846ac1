"""What a broker is asked about quotas of clients. `python -m tests.golden.quotas.questions PORT` prints the answers of
the broker at that port, which must have no quotas: so kafka.json was made, by Apache Kafka 4.3.0."""

import asyncio
import json
import sys
from typing import Any

from tailrace.model.errors import ErrorCode
from tailrace.wire.apis.admin import AlterClientQuotasRequest, DescribeClientQuotasRequest
from tests.unit.broker.world import Peer

Entity = list[tuple[str, str | None]]
Ops = dict[str, float | None]  # None takes a quota away.

USER: Entity = [("user", "u")]
PAIR: Entity = [("user", "u"), ("client-id", "c")]
ADDRESS: Entity = [("ip", "10.1.2.3")]
# One change each, of one entity.
CHANGES: dict[str, tuple[Entity, Ops]] = {
    "unknown key": (USER, {"bogus": 1.0}),
    "empty key": (USER, {"": 1.0}),
    "key of an address for a user": (USER, {"connection_creation_rate": 1.0}),
    "key of a user for an address": (ADDRESS, {"producer_byte_rate": 1.0}),
    "fraction of a byte": (USER, {"producer_byte_rate": 1.5}),
    "fraction of a byte to a consumer": (USER, {"consumer_byte_rate": 0.5}),
    "hardly a fraction": (USER, {"producer_byte_rate": 5.0000001}),
    "fraction of a connection": (ADDRESS, {"connection_creation_rate": 2.5}),
    "fraction of a percent": (USER, {"request_percentage": 0.5}),
    "fraction of a mutation": (USER, {"controller_mutation_rate": 0.25}),
    "zero": (USER, {"producer_byte_rate": 0.0}),
    "below zero": (USER, {"request_percentage": -1.0}),
    "too many connections": (ADDRESS, {"connection_creation_rate": 2.0**31}),
    "as many connections as there may be": (ADDRESS, {"connection_creation_rate": 2.0**31 - 1}),
    "too many bytes": (USER, {"consumer_byte_rate": 2.0**64}),
    "as many bytes as there may be": (USER, {"consumer_byte_rate": 2.0**63}),
    "no entity": ([], {"producer_byte_rate": 1.0}),
    "address and user": ([("ip", "10.1.2.3"), ("user", "u")], {"connection_creation_rate": 1.0}),
    "address and client": ([("ip", None), ("client-id", None)], {"connection_creation_rate": 1.0}),
    "unknown kind": ([("group", "g")], {"producer_byte_rate": 1.0}),
    "unknown kind and a user": ([("group", "g"), ("user", "u")], {"producer_byte_rate": 1.0}),
    "empty user": ([("user", "")], {"producer_byte_rate": 1.0}),
    "empty client": ([("client-id", "")], {"producer_byte_rate": 1.0}),
    "no address": ([("ip", "no such host.invalid")], {"connection_creation_rate": 1.0}),
    "the same kind twice": ([("user", "a"), ("user", "b")], {"producer_byte_rate": 7.0}),
    "removal of nothing": ([("user", "nobody")], {"producer_byte_rate": None}),
    "removal of what cannot be": (USER, {"bogus": None}),
    "one of two keys is wrong": ([("user", "two")], {"producer_byte_rate": 9.0, "bogus": 1.0}),
    "nothing to change": ([("user", "idle")], {}),
    "a user": (USER, {"producer_byte_rate": 1000.0, "consumer_byte_rate": 2000.0}),
    "the same again": (USER, {"producer_byte_rate": 1000.0}),
    "one key away": (USER, {"consumer_byte_rate": None, "request_percentage": 50.0}),
    "default user": ([("user", None)], {"producer_byte_rate": 3000.0}),
    "client": ([("client-id", "c")], {"producer_byte_rate": 4000.0}),
    "default client": ([("client-id", None)], {"producer_byte_rate": 5000.0}),
    "pair": (PAIR, {"producer_byte_rate": 6000.0}),
    "user and default client": ([("client-id", None), ("user", "u")], {"producer_byte_rate": 7000.0}),
    "default user and client": ([("user", None), ("client-id", "c")], {"producer_byte_rate": 8000.0}),
    "both defaults": ([("user", None), ("client-id", None)], {"producer_byte_rate": 9000.0}),
    "address": (ADDRESS, {"connection_creation_rate": 10.0}),
    "address of version 6": ([("ip", "fe80::1")], {"connection_creation_rate": 12.0}),
    "default address": ([("ip", None)], {"connection_creation_rate": 11.0}),
    "three keys": (
        [("user", "three")],
        {"producer_byte_rate": 1.0, "consumer_byte_rate": 2.0, "request_percentage": 3.0},
    ),
    "four keys": (
        [("user", "four")],
        {
            "producer_byte_rate": 1.0,
            "consumer_byte_rate": 2.0,
            "request_percentage": 3.0,
            "controller_mutation_rate": 4.0,
        },
    ),
    "two keys in one place": ([("user", "two")], {"producer_byte_rate": 1.0, "request_percentage": 2.0}),
    "odd names": ([("user", "CN=a, O=b/%é"), ("client-id", " ")], {"controller_mutation_rate": 13.0}),
}
EXACT, DEFAULT, ANY = 0, 1, 2
# Components of a filter, and whether it is strict.
FILTERS: dict[str, tuple[list[tuple[str, int, str | None]], bool]] = {
    "all": ([], False),
    "nothing, strictly": ([], True),
    "a user": ([("user", EXACT, "u")], False),
    "a user alone": ([("user", EXACT, "u")], True),
    "default user": ([("user", DEFAULT, None)], False),
    "default user alone": ([("user", DEFAULT, None)], True),
    "any user": ([("user", ANY, None)], False),
    "any user alone": ([("user", ANY, None)], True),
    "pair": ([("user", EXACT, "u"), ("client-id", EXACT, "c")], True),
    "user with any client": ([("user", EXACT, "u"), ("client-id", ANY, None)], True),
    "both defaults": ([("user", DEFAULT, None), ("client-id", DEFAULT, None)], False),
    "nobody": ([("user", EXACT, "nobody")], False),
    "address": ([("ip", EXACT, "10.1.2.3")], True),
    "any address": ([("ip", ANY, None)], False),
    "default address": ([("ip", DEFAULT, None)], False),
    "unknown kind": ([("group", EXACT, "g")], False),
    "empty kind": ([("", EXACT, "g")], False),
    "the same kind twice": ([("user", EXACT, "u"), ("user", ANY, None)], False),
    "address and user": ([("ip", ANY, None), ("user", ANY, None)], False),
    "unknown match": ([("user", 3, None)], False),
    "exact without a name": ([("user", EXACT, None)], False),
    "default with a name": ([("user", DEFAULT, "u")], False),
    "any with a name": ([("user", ANY, "u")], False),
}


async def ask_all(peer: Peer) -> dict[str, Any]:
    answers: dict[str, Any] = {}
    for label, (entity, ops) in CHANGES.items():
        for version in (0, 1):
            request = AlterClientQuotasRequest(entries=[_entry(entity, ops)], validate_only=version == 0)
            answers[f"change v{version}: {label}"] = plain(await peer.request(request, version))
    twice = AlterClientQuotasRequest(
        entries=[_entry([("user", "double")], {"bogus": 1.0}), _entry([("user", "double")], {"bogus": 2.0})]
    )
    answers["change: an entity twice"] = plain(await peer.request(twice, 1))
    key_twice = _entry([("user", "double")], {"producer_byte_rate": 1.0})
    key_twice.ops *= 2
    answers["change: a key twice"] = plain(await peer.request(AlterClientQuotasRequest(entries=[key_twice]), 1))
    several = AlterClientQuotasRequest(
        entries=[_entry([("user", "first")], {"bogus": 1.0}), _entry([("user", "second")], {"producer_byte_rate": 2.0})]
    )
    answers["change: one of two entities is wrong"] = plain(await peer.request(several, 1))
    answers["change: no entities"] = plain(await peer.request(AlterClientQuotasRequest(), 1))
    for label, (components, strict) in FILTERS.items():
        for version in (0, 1):
            asked = [
                DescribeClientQuotasRequest.ComponentData(entity_type=kind, match_type=match_type, match=match)
                for kind, match_type, match in components
            ]
            request = DescribeClientQuotasRequest(components=asked, strict=strict)
            answers[f"describe v{version}: {label}"] = plain(await peer.request(request, version))
    return answers


def _entry(entity: Entity, ops: Ops) -> AlterClientQuotasRequest.EntryData:
    request = AlterClientQuotasRequest
    return request.EntryData(
        entity=[request.EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
        ops=[request.OpData(key=key, value=value or 0.0, remove=value is None) for key, value in ops.items()],
    )


def plain(answer: Any) -> Any:
    """Without the words, and with entities in an order of their own: Kafka's is that of a hash table. So is that of an
    entity's values, but it can be told beforehand, and clients compare it."""
    told: dict[str, Any] = {}
    if getattr(answer, "error_code", 0):
        told["error"] = ErrorCode(answer.error_code).name
    entries = None
    if answer.entries is not None:
        entries = []
        for entry in answer.entries:
            entity = sorted((part.entity_type, part.entity_name) for part in entry.entity)
            if hasattr(entry, "values"):
                entries.append([entity, [(each.key, each.value) for each in entry.values]])
            else:
                entries.append([entity, ErrorCode(entry.error_code).name])
    told["entries"] = entries and sorted(entries, key=str)
    return json.loads(json.dumps(told))


async def _record(port: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    peer = Peer(reader, writer)
    answers = await ask_all(peer)
    await peer.close()
    lines = [f"{json.dumps(label)}: {json.dumps(answer, sort_keys=True)}" for label, answer in answers.items()]
    print("{\n" + ",\n".join(lines) + "\n}")


if __name__ == "__main__":
    asyncio.run(asyncio.wait_for(_record(int(sys.argv[1])), 120))
