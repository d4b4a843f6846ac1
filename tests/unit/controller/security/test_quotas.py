"""Quotas of clients: which one holds for whom, and that they live in the log and in snapshots.

What requests for them are answered is compared with Kafka in tests/golden.
"""

from itertools import product

import pytest

from tailrace.controller.image import MetadataImage
from tailrace.controller.replay import Replay
from tailrace.controller.security.limits import AddressLimits, Limit, find_limit, parse_address
from tailrace.controller.snapshot import records_of
from tailrace.model.errors import ErrorCode
from tailrace.model.quotas import QuotaEntity, quota_entity
from tailrace.wire.apis.admin import AlterClientQuotasRequest, AlterClientQuotasResponse
from tests.unit.controller.cluster import CLUSTER_ID, Cluster

KEY = "producer_byte_rate"


def entry(entity: dict[str, str | None], **values: float | None) -> AlterClientQuotasRequest.EntryData:
    request = AlterClientQuotasRequest
    return request.EntryData(
        entity=[request.EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()],
        ops=[request.OpData(key=key, value=value or 0.0, remove=value is None) for key, value in values.items()],
    )


def alter(cluster: Cluster, *entries: AlterClientQuotasRequest.EntryData, validate_only: bool = False) -> list[int]:
    request = AlterClientQuotasRequest(entries=list(entries), validate_only=validate_only)
    return [each.error_code for each in cluster.do(request, AlterClientQuotasResponse).entries]


def test_what_goes_well_has_no_message() -> None:
    """Kafka's message is null then, not empty: @platformatic/kafka hands it to its caller."""
    request = AlterClientQuotasRequest(entries=[entry({"user": "u"}, **{KEY: 1.0}), entry({"user": "v"}, nonsense=1.0)])
    good, wrong = Cluster().do(request, AlterClientQuotasResponse).entries
    assert (good.error_code, good.error_message) == (0, None)
    assert wrong.error_code != 0
    assert wrong.error_message


# In the order in which they hold, with whose use is counted together.
PRECEDENCE: list[tuple[dict[str, str | None], tuple[str | None, str | None]]] = [
    ({"user": "u", "client-id": "c"}, ("u", "c")),
    ({"user": "u", "client-id": None}, ("u", "c")),
    ({"user": "u"}, ("u", None)),
    ({"user": None, "client-id": "c"}, ("u", "c")),
    ({"user": None, "client-id": None}, ("u", "c")),
    ({"user": None}, ("u", None)),
    ({"client-id": "c"}, (None, "c")),
    ({"client-id": None}, (None, "c")),
]


def test_the_first_that_exists_holds() -> None:
    for chosen in product((False, True), repeat=len(PRECEDENCE)):
        quotas = {
            quota_entity(names.items()): {KEY: float(rank + 1)}
            for rank, ((names, _scope), is_set) in enumerate(zip(PRECEDENCE, chosen, strict=True))
            if is_set
        }
        # Those of others never count.
        quotas |= {(("user", "other"),): {KEY: 99.0}, (("client-id", "other"), ("user", "u")): {KEY: 99.0}}
        found = find_limit(quotas, KEY, "u", "c")
        if not any(chosen):
            assert found is None
        else:
            rank = chosen.index(True)
            assert found == Limit(float(rank + 1), *PRECEDENCE[rank][1])


def test_each_key_is_looked_for_alone() -> None:
    quotas = {(("user", "u"),): {KEY: 1.0}, (("client-id", "c"),): {"consumer_byte_rate": 2.0}}
    assert find_limit(quotas, KEY, "u", "c") == Limit(1.0, "u", None)
    assert find_limit(quotas, "consumer_byte_rate", "u", "c") == Limit(2.0, None, "c")


def test_an_address_has_many_spellings() -> None:
    key = "connection_creation_rate"
    quotas: dict[QuotaEntity, dict[str, float]] = {
        (("ip", "2001:DB8:0::1"),): {key: 1.0},
        (("ip", "10.0.0.1"),): {key: 2.0},
        (("ip", "a.host.of.another.node"),): {key: 9.0},
        (("user", "u"),): {key: 9.0},
    }
    limits = AddressLimits(quotas)
    assert limits.find(parse_address("2001:db8::1") or "") == 1.0
    assert limits.find(parse_address("::ffff:10.0.0.1") or "") == 2.0
    assert limits.find("10.0.0.2") is None
    assert AddressLimits({**quotas, (("ip", None),): {key: 3.0}}).find("10.0.0.2") == 3.0
    assert limits
    assert not AddressLimits({(("user", "u"),): {key: 9.0}})


def test_they_are_replayed_and_kept_by_snapshots() -> None:
    cluster = Cluster(features=True)
    assert alter(cluster, entry({"user": "u"}, producer_byte_rate=5.0, request_percentage=0.5)) == [0]
    assert alter(cluster, entry({"client-id": None, "user": None}, consumer_byte_rate=7.0)) == [0]
    assert alter(cluster, entry({"ip": "10.0.0.1"}, connection_creation_rate=3.0)) == [0]
    before = cluster.image
    assert alter(cluster, entry({"user": "u"}, producer_byte_rate=None)) == [0]
    assert before.client_quotas[("user", "u"),] == {"producer_byte_rate": 5.0, "request_percentage": 0.5}
    assert cluster.image.client_quotas == {
        (("user", "u"),): {"request_percentage": 0.5},
        (("client-id", None), ("user", None)): {"consumer_byte_rate": 7.0},
        (("ip", "10.0.0.1"),): {"connection_creation_rate": 3.0},
    }
    replay = Replay(MetadataImage(CLUSTER_ID))
    for offset, record in enumerate(record for group in records_of(cluster.image) for record in group):
        replay.replay_record(offset, record)
    assert replay.image().client_quotas == cluster.image.client_quotas
    for entity in list(cluster.image.client_quotas):
        assert alter(cluster, entry(dict(entity), **dict.fromkeys(cluster.image.client_quotas[entity]))) == [0]
    assert cluster.image.client_quotas == {}


def test_what_is_so_already_is_not_written() -> None:
    cluster = Cluster()
    alter(cluster, entry({"user": "u"}, producer_byte_rate=5.0))
    written = len(cluster.records)
    alter(cluster, entry({"user": "u"}, producer_byte_rate=5.0), entry({"user": "v"}, consumer_byte_rate=None))
    alter(cluster, entry({"user": "w"}, producer_byte_rate=5.0), validate_only=True)
    assert len(cluster.records) == written


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_a_number_that_is_none_is_refused(value: float) -> None:
    cluster = Cluster()
    assert alter(cluster, entry({"user": "u"}, request_percentage=value)) == [ErrorCode.INVALID_REQUEST]


def test_an_entity_that_stands_in_a_request_twice_is_not_changed() -> None:
    cluster = Cluster()
    twice = [entry({"user": "u"}, producer_byte_rate=rate) for rate in (1.0, 2.0)]
    assert alter(cluster, *twice, entry({"user": "v"}, producer_byte_rate=3.0)) == [ErrorCode.INVALID_REQUEST, 0]
    assert cluster.image.client_quotas == {(("user", "v"),): {"producer_byte_rate": 3.0}}


def test_host_names_are_not_looked_up() -> None:
    cluster = Cluster()
    assert alter(cluster, entry({"ip": "localhost"}, connection_creation_rate=1.0)) == [ErrorCode.INVALID_REQUEST]
