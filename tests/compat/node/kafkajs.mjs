// kafkajs: administers a topic and writes to it; it can read only in groups, so another client reads.
// Usage: node kafkajs.mjs BOOTSTRAP TOPIC PLAN, where PLAN is a file of records. Prints one JSON object.
import { readFileSync } from "node:fs";
import kafkajs from "kafkajs";

const { CompressionTypes, ConfigResourceTypes, Kafka, logLevel } = kafkajs;
const [bootstrap, topic, plan] = process.argv.slice(2);
const kafka = new Kafka({ brokers: [bootstrap], logLevel: logLevel.NOTHING, retry: { retries: 3 } });
const decode = (text) => (text === null ? null : Buffer.from(text, "base64"));
const messages = JSON.parse(readFileSync(plan, "utf8")).map((record) => ({
  key: decode(record.key),
  value: decode(record.value),
  timestamp: String(record.timestamp_ms),
  headers: Object.fromEntries(record.headers.map(([name, value]) => [name, decode(value)])),
  partition: 0,
}));

const admin = kafka.admin();
await admin.connect();
const created = await admin.createTopics({ topics: [{ topic, numPartitions: 1, replicationFactor: 1 }] });
const again = await admin.createTopics({ topics: [{ topic, numPartitions: 1, replicationFactor: 1 }] });
await admin.alterConfigs({
  validateOnly: false,
  resources: [
    { type: ConfigResourceTypes.TOPIC, name: topic, configEntries: [{ name: "retention.ms", value: "3600000000000" }] },
  ],
});
const described = await admin.describeConfigs({
  includeSynonyms: false,
  resources: [{ type: ConfigResourceTypes.TOPIC, name: topic, configNames: ["retention.ms"] }],
});
await admin.createPartitions({ topicPartitions: [{ topic, count: 2 }] });
const metadata = await admin.fetchTopicMetadata({ topics: [topic] });

const offsets = [];
for (const [acks, compression, idempotent] of [
  [-1, CompressionTypes.None, false],
  [1, CompressionTypes.GZIP, false],
  [-1, CompressionTypes.GZIP, true],
  [0, CompressionTypes.GZIP, false],
]) {
  const producer = kafka.producer({ idempotent });
  await producer.connect();
  // Two requests, so that the sequence numbers of the idempotent one are used.
  for (const part of [messages.slice(0, 3), messages.slice(3)]) {
    const answers = await producer.send({ topic, acks, compression, messages: part });
    offsets.push(acks === 0 ? null : Number(answers[0].baseOffset));
  }
  await producer.disconnect();
}

const listed = await admin.fetchTopicOffsets(topic);
const byTime = await admin.fetchTopicOffsetsByTimestamp(topic, Number(messages[2].timestamp));
await admin.deleteTopicRecords({ topic, partitions: [{ partition: 0, offset: "1" }] });
const afterDelete = await admin.fetchTopicOffsets(topic);
const cluster = await admin.describeCluster();
await admin.disconnect();
const first = (entries) => entries.find((entry) => entry.partition === 0);
console.log(
  JSON.stringify({
    created,
    again,
    retention: described.resources[0].configEntries[0].configValue,
    partitions: metadata.topics[0].partitions.length,
    offsets,
    byTime: Number(first(byTime).offset),
    low: Number(first(listed).low),
    lowAfterDelete: Number(first(afterDelete).low),
    brokers: cluster.brokers.map((broker) => `${broker.host}:${broker.port}`),
  }),
);
