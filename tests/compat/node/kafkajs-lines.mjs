// kafkajs: an idempotent producer that writes each line of its input as it comes, one request a line.
// Usage: node kafkajs-lines.mjs BOOTSTRAP TOPIC
import { createInterface } from "node:readline";
import kafkajs from "kafkajs";

const [bootstrap, topic] = process.argv.slice(2);
const kafka = new kafkajs.Kafka({ brokers: bootstrap.split(","), logLevel: kafkajs.logLevel.NOTHING });
const producer = kafka.producer({ idempotent: true, maxInFlightRequests: 1, retry: { retries: 50, maxRetryTime: 500 } });
await producer.connect();
for await (const line of createInterface({ input: process.stdin })) {
  await producer.send({ topic, acks: -1, messages: [{ value: line, partition: 0 }] });
}
await producer.disconnect();
