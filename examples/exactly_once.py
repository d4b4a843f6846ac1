"""A consume-transform-produce loop with confluent-kafka: every payment becomes one receipt, however often this process
dies and is started again.

    python examples/exactly_once.py BOOTSTRAP PAYMENTS [PAUSE_AFTER]

It ends once the receipts of so many payments are committed. With PAUSE_AFTER it stops in the middle of a transaction,
after so many receipts, and says so: `make demo` kills it there.
"""

import sys
import time

from confluent_kafka import Consumer, Producer

PAYMENTS, RECEIPTS = "payments", "receipts"
RECORDS_IN_TRANSACTION = 250


def main(bootstrap: str, payments: int, pause_after: int | None) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "cashiers",
            # A member with a name of its own takes its place again at once, without a rebalance.
            "group.instance.id": "cashier-1",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "log_level": 2,
        }
    )
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "cashier-1", "log_level": 2})
    # Fences whoever has this id, and aborts what it left open: only then the committed offsets are final.
    producer.init_transactions()
    consumer.subscribe([PAYMENTS])
    written = 0
    while committed(consumer) < payments:
        records = [record for record in consumer.consume(RECORDS_IN_TRANSACTION, timeout=0.2) if not record.error()]
        if not records:
            continue
        producer.begin_transaction()
        for record in records:
            producer.produce(RECEIPTS, b"receipt of payment " + (record.value() or b""))
        written += len(records)
        if pause_after is not None and written >= pause_after:
            producer.flush()
            print(written, len(records), flush=True)
            time.sleep(60)
        # What was read and what was written are committed together, or not at all.
        positions = consumer.position(consumer.assignment())
        producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata())
        producer.commit_transaction()
    print(written, flush=True)
    consumer.close()


def committed(consumer: Consumer) -> int:
    return sum(max(0, place.offset) for place in consumer.committed(consumer.assignment(), timeout=30))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else None)
