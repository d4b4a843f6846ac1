// kafkajs: a member of a group that commits after every batch.
// Usage: node kafkajs-member.mjs BOOTSTRAP GROUP TOPIC SETTINGS, where the settings are JSON for its consumer.
import kafkajs from "kafkajs";
import { Journal } from "./journal.mjs";

const [bootstrap, groupId, topic, settings] = process.argv.slice(2);
const kafka = new kafkajs.Kafka({
  brokers: bootstrap.split(","),
  logLevel: kafkajs.logLevel.NOTHING,
  retry: { retries: 50, initialRetryTime: 50, maxRetryTime: 300 },
});
const consumer = kafka.consumer({
  groupId,
  sessionTimeout: 4000,
  heartbeatInterval: 100,
  maxWaitTimeInMs: 50,
  ...JSON.parse(settings),
});
const journal = new Journal(async () => {
  // Stopping leaves the group as well, so what is owned is given back just before: no batch is taken any more.
  consumer.pause([{ topic }]);
  journal.gaveAllBack();
  await consumer.disconnect();
  process.exit(0);
});
// It has no callback of revocation; these tell that it will join again, and own nothing meanwhile.
consumer.on(consumer.events.REBALANCING, () => journal.gaveAllBack());
consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
  journal.gaveAllBack("lost");
  journal.assigned(payload.memberAssignment[topic] ?? []);
});
await consumer.connect();
await consumer.subscribe({ topics: [topic], fromBeginning: true });
await consumer.run({
  autoCommit: false,
  eachBatchAutoResolve: false,
  eachBatch: async ({ batch, heartbeat, isRunning, isStale, resolveOffset, commitOffsetsIfNecessary }) => {
    const { partition } = batch;
    // While one of its workers joins again, others may still hand out what they had.
    if (journal.closing || !isRunning() || isStale() || !batch.messages.length || !journal.owned.has(partition)) return;
    const read = batch.messages.map(({ offset, value }) => [partition, Number(offset), Number(value)]);
    journal.write("read", read);
    resolveOffset(batch.messages.at(-1).offset);
    const next = read.at(-1)[1] + 1;
    try {
      await commitOffsetsIfNecessary({ topics: [{ topic, partitions: [{ partition, offset: String(next) }] }] });
      journal.write("committed", [[partition, next]]);
    } catch (error) {
      journal.write("said", `commit: ${error.message}`);
      throw error;
    }
    await heartbeat();
  },
});
