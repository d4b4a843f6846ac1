"""aiokafka: three records written, and read as a member of a group.

Usage: python aio.py [BOOTSTRAP]
"""

import asyncio
import sys

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer


async def main(bootstrap: str) -> None:
    async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
        for number in range(3):
            await producer.send_and_wait("greetings", key=b"ann", value=b"hello %d" % number)
    consumer = AIOKafkaConsumer(
        "greetings", bootstrap_servers=bootstrap, group_id="readers", auto_offset_reset="earliest"
    )
    async with consumer:
        for _ in range(3):
            record = await consumer.getone()
            print(f"{record.partition}:{record.offset} {record.key.decode()} {record.value.decode()}")


asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9092"))
