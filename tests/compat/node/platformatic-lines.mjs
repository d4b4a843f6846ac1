// @platformatic/kafka: an idempotent producer that writes each line of its input as it comes, one request a line.
// Usage: node platformatic-lines.mjs BOOTSTRAP TOPIC
import { createInterface } from "node:readline";
import { Producer } from "@platformatic/kafka";

const [bootstrap, topic] = process.argv.slice(2);
const brokers = { clientId: "compat", bootstrapBrokers: bootstrap.split(","), retries: 50, retryDelay: 200 };
const producer = new Producer({ ...brokers, idempotent: true });
for await (const line of createInterface({ input: process.stdin })) {
  await producer.send({ messages: [{ topic, partition: 0, value: Buffer.from(line) }], acks: -1, idempotent: true });
}
await producer.close();
