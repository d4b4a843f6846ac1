"""Offsets in a transaction on a broker where no group has been heard of: nobody has had their topic created."""

from tailrace.model.errors import ErrorCode
from tailrace.wire.apis.transactions import AddOffsetsToTxnRequest
from tests.unit.broker.transactions.scene import OLD, SETTINGS, Producer, prepare
from tests.unit.broker.world import running

TRIES = 20


async def test_an_old_client_may_add_offsets_before_anyone_asks_for_a_group():
    """It looks for the group's coordinator only once they are added: kafka-python and librdkafka do."""
    async with running(SETTINGS) as world:
        peer = await prepare(world, "t")
        assert "__consumer_offsets" not in world.broker.services.image.topics
        producer = Producer(peer, OLD)
        await producer.init()
        request = AddOffsetsToTxnRequest(
            transactional_id="x", producer_id=producer.producer_id, producer_epoch=producer.epoch, group_id="g"
        )
        answers = [(await peer.request(request, 3)).error_code for _ in range(TRIES)]
        assert answers[-1] == ErrorCode.NONE
        assert set(answers) <= {ErrorCode.NONE, ErrorCode.COORDINATOR_NOT_AVAILABLE}
        assert await producer.end(is_commit=True) is ErrorCode.NONE
