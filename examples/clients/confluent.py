"""confluent-kafka: three records written, and read as a member of a group.

Usage: python confluent.py [BOOTSTRAP]
"""

import sys

from confluent_kafka import Consumer, Producer

bootstrap = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9092"

producer = Producer({"bootstrap.servers": bootstrap})
for number in range(3):
    producer.produce("greetings", key="ann", value=f"hello {number}")
producer.flush()

consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "readers", "auto.offset.reset": "earliest"})
consumer.subscribe(["greetings"])
for _ in range(3):
    (record,) = consumer.consume(1)
    print(f"{record.partition()}:{record.offset()} {record.key().decode()} {record.value().decode()}")
consumer.close()
