"""Meters: whose use is counted together, and that a client cannot fill the memory with them."""

import pytest

from tailrace.broker.context import BoundListener, RequestContext
from tailrace.broker.quotas.meters import Meters, MutationCharge
from tailrace.controller.image import MetadataImage
from tailrace.model.config import parse_broker_config
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.model.quotas import Quotas
from tailrace.model.security import Principal
from tailrace.wire.apis.keys import ApiKey


class Clock:
    """What the meters ask of a clock, moved by hand."""

    now_ms = 0.0

    def monotonic_ms(self) -> float:
        return self.now_ms


def meters_with(quotas: Quotas, **settings: str) -> tuple[Meters, Clock]:
    clock = Clock()
    named = {name.replace("_", "."): value for name, value in settings.items()}
    meters = Meters(parse_broker_config({"node.id": "1", **named}), clock)  # type: ignore[arg-type]
    meters.follow_image(None, MetadataImage("", client_quotas=quotas))
    return meters, clock


def test_a_default_gives_each_its_own() -> None:
    meters, clock = meters_with({(("user", None),): {"producer_byte_rate": 10.0}})
    first, again, other = meters.of("u", "a").produced, meters.of("u", "b").produced, meters.of("v", "a").produced
    assert first is not None
    assert again is not None
    assert other is not None
    assert first.rate is again.rate
    assert first.rate is not other.rate
    assert first.charge(1000, clock.now_ms) == again.charge(0, clock.now_ms) > 0
    assert other.charge(0, clock.now_ms) == 0


def test_there_is_a_number_only_while_a_quota_of_clients_is_set() -> None:
    meters, _clock = meters_with({(("ip", None),): {"connection_creation_rate": 10.0}})
    assert meters.number == 0
    numbers = [0]
    for quotas in (
        {(("user", "u"),): {"request_percentage": 1.0}},
        {(("user", "u"),): {"request_percentage": 2.0}},
        {},
    ):
        meters.follow_image(None, MetadataImage("", client_quotas=quotas))
        numbers.append(meters.number)
    assert numbers[-1] == 0
    assert len(set(numbers)) == 3


def test_client_ids_are_forgotten_and_users_are_not() -> None:
    quotas = {(("user", "u"),): {"producer_byte_rate": 10.0}, (("client-id", None),): {"producer_byte_rate": 10.0}}
    meters, clock = meters_with(quotas, quota_clients_max="100")
    user = meters.of("u", "c").produced
    assert user is not None
    user.charge(1000, clock.now_ms)
    for number in range(1000):
        each = meters.of("v", f"client-{number}").produced
        assert each is not None
        each.charge(1000, clock.now_ms)
    assert len(meters._rates) <= 100
    again = meters.of("u", "c").produced
    assert again is not None
    assert again.charge(0, clock.now_ms) > 0


def charge_of(meters: Meters, api_key: ApiKey, version: int) -> MutationCharge | None:
    return meters.mutations(
        RequestContext(
            api_key=api_key,
            api_version=version,
            correlation_id=1,
            client_id=None,
            peer="127.0.0.1:1",
            listener=BoundListener("PLAINTEXT", "", 0),
            principal=Principal("User", "u"),
        )
    )


@pytest.mark.parametrize(
    ("api_key", "strict"), [(ApiKey.CREATE_TOPICS, 6), (ApiKey.DELETE_TOPICS, 5), (ApiKey.CREATE_PARTITIONS, 3)]
)
def test_mutations_are_refused_from_a_version_on(api_key: ApiKey, strict: int) -> None:
    """As Kafka 4.3 was seen to do it: 6 partitions each, 1 a second, 11 at once."""
    meters, clock = meters_with({(("user", "u"),): {"controller_mutation_rate": 1.0}})
    told = []
    for _ in range(4):
        charge = charge_of(meters, api_key, strict - 1)
        assert charge is not None
        charge(6)
        told.append(charge.throttle_ms)
    assert told == [0, 1000, 7000, 13000]
    charge = charge_of(meters, api_key, strict)
    assert charge is not None
    with pytest.raises(KafkaError) as refused:
        charge(6)
    assert refused.value.code is ErrorCode.THROTTLING_QUOTA_EXCEEDED
    clock.now_ms += 500
    assert charge.throttle_ms == 12500, "what is left of it"
    clock.now_ms += 12500
    charge = charge_of(meters, api_key, strict)
    assert charge is not None
    charge(6)
    assert charge.throttle_ms == 0, "what overdraws it is done"


def test_other_requests_are_no_mutations() -> None:
    meters, _clock = meters_with({(("user", "u"),): {"controller_mutation_rate": 1.0}})
    assert charge_of(meters, ApiKey.ALTER_CONFIGS, 2) is None
    meters, _clock = meters_with({(("user", "v"),): {"controller_mutation_rate": 1.0}})
    assert charge_of(meters, ApiKey.CREATE_TOPICS, 7) is None
