// @platformatic/kafka: speaks near the newest versions only. Writes, then reads by offset without a group.
// Usage: node platformatic.mjs BOOTSTRAP TOPIC PLAN, where PLAN is a file of records. Prints one JSON object.
import { readFileSync } from "node:fs";
import { Admin, Consumer, Producer } from "@platformatic/kafka";

const [bootstrap, topic, plan] = process.argv.slice(2);
const base = { clientId: "compat", bootstrapBrokers: [bootstrap], retries: 3 };
const decode = (text) => (text === null ? undefined : Buffer.from(text, "base64"));
const encode = (bytes) => (bytes === null || bytes === undefined ? null : Buffer.from(bytes).toString("base64"));
const messages = JSON.parse(readFileSync(plan, "utf8")).map((record) => ({
  topic,
  partition: 0,
  key: decode(record.key),
  value: decode(record.value),
  timestamp: BigInt(record.timestamp_ms),
  headers: new Map(record.headers.map(([name, value]) => [Buffer.from(name), decode(value)])),
}));

const admin = new Admin(base);
const [made] = await admin.createTopics({ topics: [topic], partitions: 1, replicas: 1 });
const topics = await admin.listTopics();

const offsets = [];
for (const [acks, compression, idempotent] of [
  [-1, "none", false],
  [1, "gzip", false],
  [-1, "snappy", false],
  [-1, "lz4", false],
  [-1, "gzip", true],
]) {
  const producer = new Producer({ ...base, idempotent });
  const answer = await producer.send({ messages, acks, compression, idempotent });
  offsets.push(Number(answer.offsets[0].offset));
  await producer.close();
}

const consumer = new Consumer({ ...base, groupId: "unused", maxWaitTime: 1000 });
const metadata = await consumer.metadata({ topics: [topic] });
const { id, partitions } = metadata.topics.get(topic);
const ends = await consumer.listOffsets({ topics: [topic], partitions: { [topic]: [0] }, timestamp: -1n });
const end = Number(ends.get(topic)[0]);
const batches = [];
for (let next = 0, tries = 0; next < end && tries < 100; tries += 1) {
  const answer = await consumer.fetch({
    node: partitions[0].leader,
    maxBytes: 1 << 20,
    topics: [
      {
        topicId: id,
        partitions: [
          {
            partition: 0,
            currentLeaderEpoch: partitions[0].leaderEpoch,
            fetchOffset: BigInt(next),
            lastFetchedEpoch: -1,
            partitionMaxBytes: 1 << 20,
          },
        ],
      },
    ],
  });
  for (const batch of [answer.responses[0].partitions[0].records ?? []].flat()) {
    next = Number(batch.firstOffset) + batch.lastOffsetDelta + 1;
    batches.push({
      offset: Number(batch.firstOffset),
      values: batch.records.map((record) => encode(record.value)),
    });
  }
}
await consumer.close();
await admin.createPartitions({ topics: [{ name: topic, count: 2, assignments: [{ brokerIds: [partitions[0].leader] }] }] });
const grown = await admin.metadata({ topics: [topic], forceUpdate: true });
await admin.deleteTopics({ topics: [topic] });
const left = await admin.listTopics();
await admin.close();
console.log(
  JSON.stringify({
    partitions: [made.partitions, grown.topics.get(topic).partitionsCount],
    retention: made.configuration["retention.ms"],
    listed: topics.includes(topic),
    left: left.includes(topic),
    offsets,
    end,
    values: batches.flatMap((batch) => batch.values),
  }),
);
