// @platformatic/kafka: a member of a group, of either protocol, that commits as it goes.
// Usage: node platformatic-member.mjs BOOTSTRAP GROUP TOPIC SETTINGS, where the settings are JSON for its consumer.
import { Consumer } from "@platformatic/kafka";
import { commitEveryMs, Journal } from "./journal.mjs";

const [bootstrap, groupId, topic, settings] = process.argv.slice(2);
const given = JSON.parse(settings);
const classic = given.groupProtocol === "consumer" ? {} : { sessionTimeout: 4000, heartbeatInterval: 100 };
const consumer = new Consumer({
  clientId: "compat",
  bootstrapBrokers: bootstrap.split(","),
  retries: 50,
  retryDelay: 100,
  maxWaitTime: 50,
  groupId,
  ...classic,
  ...given,
});
let positions = new Map();
let committing = Promise.resolve();

function commit() {
  committing = committing.then(async () => {
    const taken = positions;
    positions = new Map();
    if (!taken.size) return;
    const offsets = [...taken].map(([partition, offset]) => ({ topic, partition, offset: BigInt(offset), leaderEpoch: -1 }));
    try {
      await consumer.commit({ offsets });
      journal.write("committed", [...taken]);
    } catch (error) {
      journal.write("said", `commit: ${error.message}`);
    }
  });
  return committing;
}

const journal = new Journal(async () => {
  await commit();
  journal.gaveAllBack();
  await consumer.close(true);
  process.exit(0);
});

// It has no callback of revocation: with the consumer protocol its assignment changes before the heartbeat that
// releases partitions, with the classic one it owns nothing between a rebalance and the next join.
function follow() {
  const now = new Set((consumer.assignments ?? []).flatMap((each) => each.partitions));
  journal.gaveBack([...journal.owned].filter((partition) => !now.has(partition)));
  const fresh = [...now].filter((partition) => !journal.owned.has(partition));
  if (fresh.length) journal.assigned(fresh);
}
if (given.groupProtocol === "consumer") {
  consumer.on("consumer:heartbeat:start", follow);
} else {
  consumer.on("consumer:group:rebalance", () => journal.gaveAllBack());
  consumer.on("consumer:group:join", follow);
}
const stream = await consumer.consume({ topics: [topic], mode: "committed", fallbackMode: "earliest", autocommit: false });
setInterval(commit, commitEveryMs);
stream.on("error", (error) => journal.write("said", `stream: ${error.message}`));
stream.on("data", ({ partition, offset, value }) => {
  // What it had in store when a partition was taken away comes out nevertheless.
  if (journal.closing || !journal.owned.has(partition)) return;
  journal.write("read", [[partition, Number(offset), Number(value)]]);
  positions.set(partition, Number(offset) + 1);
});
