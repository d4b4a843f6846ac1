// kafkajs: lists, describes, moves and deletes a group. Usage: node kafkajs-groups.mjs BOOTSTRAP GROUP TOPIC
import kafkajs from "kafkajs";

const [bootstrap, groupId, topic] = process.argv.slice(2);
const kafka = new kafkajs.Kafka({ brokers: [bootstrap], logLevel: kafkajs.logLevel.NOTHING, retry: { retries: 3 } });
const admin = kafka.admin();
await admin.connect();
const isListed = async () => (await admin.listGroups()).groups.some((each) => each.groupId === groupId);
const offsets = async () => {
  const [{ partitions }] = await admin.fetchOffsets({ groupId, topics: [topic] });
  return partitions.sort((one, other) => one.partition - other.partition);
};
const committed = async () =>
  (await offsets()).filter((each) => each.offset !== "-1").map((each) => [each.partition, each.offset, each.metadata ?? ""]);
const listed = await isListed();
const { groups } = await admin.describeGroups([groupId]);
const before = await committed();
await admin.setOffsets({ groupId, topic, partitions: [{ partition: 0, offset: "4" }] });
const after = await committed();
await admin.deleteGroups([groupId]);
const left = await isListed();
await admin.disconnect();
console.log(
  JSON.stringify({ listed, state: groups[0].state, before, after, left }),
);
