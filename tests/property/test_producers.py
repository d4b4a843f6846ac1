"""ProducerStates against a model that remembers every record: what is written, is written once and in order."""

from dataclasses import dataclass, field

from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.log.producers import MAX_SEQUENCE, ProducerStates
from tailrace.log.validation import Origin
from tailrace.model.errors import ErrorCode, KafkaError
from tailrace.wire.records import BatchHeader

PRODUCERS = 3


@dataclass
class Model:
    """One producer id, with the sequences as ever growing numbers so that wrapping shows."""

    epoch: int = -1
    next: int | None = None
    batches: list[tuple[int, int, int]] = field(default_factory=list)  # first number, count, base offset

    def expect(self, epoch: int, number: int, count: int) -> tuple[str, int]:
        if self.next is None:
            return "taken", -1
        if epoch == self.epoch:
            for first, size, base_offset in self.batches[-5:]:
                if wrap(first) == wrap(number) and size == count:
                    return "duplicate", base_offset
        if epoch < self.epoch:
            return "fenced", -1
        expected = 0 if epoch > self.epoch else wrap(self.next)
        return ("taken", -1) if wrap(number) == expected else ("out of order", -1)

    def take(self, epoch: int, number: int, count: int, base_offset: int) -> None:
        if epoch != self.epoch:
            self.batches.clear()
        self.epoch, self.next = epoch, number + count
        self.batches.append((number, count, base_offset))


def wrap(number: int) -> int:
    return number % (MAX_SEQUENCE + 1)


ATTEMPTS = st.lists(
    st.tuples(
        st.integers(0, PRODUCERS - 1),
        st.integers(0, 2),  # epoch
        st.sampled_from(["next", "next", "next", "again", "gap", "zero", "edge"]),
        st.integers(1, 4),  # records
        st.integers(0, 6),  # how far back "again" goes
    ),
    max_size=60,
)


@settings(max_examples=150, deadline=None)
@given(ATTEMPTS, st.booleans())
def test_states_decide_as_a_model_that_forgets_nothing(
    attempts: list[tuple[int, int, str, int, int]], restarts: bool
) -> None:
    states = ProducerStates()
    models = [Model() for _ in range(PRODUCERS)]
    end_offset = 0
    for producer_id, epoch, kind, count, back in attempts:
        model = models[producer_id]
        number, size = choose(model, kind, count, back)
        expected, base_offset = model.expect(epoch, number, size)
        header = BatchHeader(0, 0, 0, 2, 0, 0, size - 1, 0, 0, producer_id, epoch, wrap(number), size)
        try:
            duplicate = states.check(header, origin=Origin.CLIENT)
            outcome = "taken" if duplicate is None else "duplicate"
            if duplicate is not None:
                assert (duplicate.base_offset, duplicate.last_offset) == (base_offset, base_offset + size - 1)
        except KafkaError as error:
            outcome = "fenced" if error.code is ErrorCode.INVALID_PRODUCER_EPOCH else "out of order"
        assert outcome == expected
        if outcome == "taken":
            states.update(header, end_offset)
            model.take(epoch, number, size, end_offset)
            end_offset += size
        if restarts:
            states.load(states.snapshot())


def choose(model: Model, kind: str, count: int, back: int) -> tuple[int, int]:
    following = 0 if model.next is None else model.next
    match kind:
        case "again" if model.batches:
            first, size, _ = model.batches[max(0, len(model.batches) - 1 - back)]
            return first, size
        case "gap":
            return following + 1 + back, count
        case "zero":
            return 0, count
        case "edge":
            return MAX_SEQUENCE - back, count
    return following, count
