// kafkajs: three records written, and read as a member of a group.
// Usage: npm install && node hello.mjs [BOOTSTRAP]
import { Kafka } from "kafkajs";

const kafka = new Kafka({ brokers: [process.argv[2] ?? "127.0.0.1:9092"] });

const producer = kafka.producer();
await producer.connect();
for (let number = 0; number < 3; number++) {
  await producer.send({ topic: "greetings", messages: [{ key: "ann", value: `hello ${number}` }] });
}
await producer.disconnect();

const consumer = kafka.consumer({ groupId: "readers" });
await consumer.connect();
await consumer.subscribe({ topics: ["greetings"], fromBeginning: true });
let read = 0;
await consumer.run({
  eachMessage: async ({ partition, message }) => {
    console.log(`${partition}:${message.offset} ${message.key} ${message.value}`);
    if (++read === 3) setImmediate(() => consumer.disconnect());
  },
});
