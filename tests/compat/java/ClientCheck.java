// The Java client against a broker: writes in every way it has, reads by offset and by time, administers topics.
// Usage: java ClientCheck BOOTSTRAP TOPIC_PREFIX. Exits 0 after "all checks passed", else with the first failed check.

import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.TopicCollection;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.InvalidConfigurationException;
import org.apache.kafka.common.errors.InvalidPartitionsException;
import org.apache.kafka.common.errors.RecordTooLargeException;
import org.apache.kafka.common.errors.TopicExistsException;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public final class ClientCheck {
    private static final long DEADLINE_S = 20;
    private static final long START_MS = System.currentTimeMillis() - 3_600_000;
    private static final int[] SIZES_BYTES = {1, 100, 1_000, 10_000, 100_000, 900_000};

    private final String bootstrap;
    private final String prefix;
    private final Admin admin;

    private ClientCheck(String bootstrap, String prefix) {
        this.bootstrap = bootstrap;
        this.prefix = prefix;
        this.admin = Admin.create(Map.<String, Object>of("bootstrap.servers", bootstrap));
    }

    public static void main(String[] arguments) throws Exception {
        ClientCheck checks = new ClientCheck(arguments[0], arguments[1]);
        checks.writesAndReads();
        checks.administersTopics();
        checks.administersSettings();
        checks.administersRecords();
        checks.describesTheCluster();
        checks.admin.close(Duration.ofSeconds(DEADLINE_S));
        System.out.println("all checks passed");
    }

    private void writesAndReads() throws Exception {
        for (String codec : List.of("none", "gzip", "snappy", "lz4", "zstd")) {
            for (String acks : List.of("0", "1", "all", "all, idempotent")) {
                String topic = create(codec + "-" + acks.replace(", ", "-"), 1);
                List<ProducerRecord<byte[], byte[]>> sent = records(topic);
                write(sent, codec, acks.split(",")[0], acks.endsWith("idempotent"));
                same(sent, read(topic, 0, sent.size()), 0, codec + " " + acks);
                same(sent, read(topic, 3, sent.size() - 3), 3, codec + " " + acks + " from offset 3");
                check(offsetAt(topic, START_MS + 2_500) == 3, "the first record after 2.5 s is the fourth");
            }
        }
    }

    private void administersTopics() throws Exception {
        String topic = create("admin", 2);
        fails(TopicExistsException.class, admin.createTopics(List.of(new NewTopic(topic, 1, (short) 1))).all());
        NewTopic strange = new NewTopic(prefix + "-strange", 1, (short) 1).configs(Map.of("no.such.setting", "1"));
        fails(InvalidConfigurationException.class, admin.createTopics(List.of(strange)).all());
        check(get(admin.listTopics().names()).contains(topic), "a created topic is listed");
        get(admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(3))).all());
        fails(
            InvalidPartitionsException.class,
            admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(1))).all());
        TopicDescription described = get(admin.describeTopics(List.of(topic)).allTopicNames()).get(topic);
        check(described.partitions().size() == 3, "a grown topic has three partitions");
        check(described.partitions().get(2).leader().id() == described.partitions().get(0).leader().id(), "one leader");
        Uuid id = described.topicId();
        TopicCollection byId = TopicCollection.ofTopicIds(List.of(id));
        check(get(admin.describeTopics(byId).allTopicIds()).get(id).name().equals(topic), "described by id");
        get(admin.deleteTopics(byId).all());
        fails(UnknownTopicOrPartitionException.class, admin.describeTopics(List.of(topic)).allTopicNames());
    }

    private void administersSettings() throws Exception {
        String topic = create("settings", 1);
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic);
        check(describe(resource).get("retention.ms").isDefault(), "retention.ms starts at its default");
        alter(resource, "retention.ms", "60000", AlterConfigOp.OpType.SET);
        ConfigEntry changed = describe(resource).get("retention.ms");
        check(changed.value().equals("60000"), "retention.ms was set");
        check(changed.source() == ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG, "its source is the topic");
        check(changed.type() == ConfigEntry.ConfigType.LONG, "its type is long");
        alter(resource, "retention.ms", null, AlterConfigOp.OpType.DELETE);
        check(describe(resource).get("retention.ms").isDefault(), "retention.ms is back at its default");
        try {
            alter(resource, "segment.bytes", "few", AlterConfigOp.OpType.SET);
            check(false, "a value that does not parse must be refused");
        } catch (ExecutionException failure) {
            check(failure.getCause() instanceof InvalidConfigurationException, failure.toString());
        }
        String broker = String.valueOf(get(admin.describeCluster().nodes()).iterator().next().id());
        Config settings = describe(new ConfigResource(ConfigResource.Type.BROKER, broker));
        check(settings.get("node.id").value().equals(broker), "the broker's settings name its id");
        check(get(admin.listConfigResources().all()).contains(resource), "the topic is among the resources");
        String small = create("small", 1);
        alter(new ConfigResource(ConfigResource.Type.TOPIC, small), "max.message.bytes", "1000", AlterConfigOp.OpType.SET);
        try {
            write(List.of(new ProducerRecord<>(small, 0, null, new byte[5_000])), "none", "all", true);
            check(false, "a record over the limit must be refused");
        } catch (ExecutionException failure) {
            check(failure.getCause() instanceof RecordTooLargeException, failure.toString());
        }
    }

    private void administersRecords() throws Exception {
        String topic = create("records", 1);
        write(records(topic), "lz4", "all", true);
        int count = records(topic).size();
        check(listed(topic, OffsetSpec.earliest()) == 0, "earliest");
        check(listed(topic, OffsetSpec.latest()) == count, "latest");
        check(listed(topic, OffsetSpec.maxTimestamp()) == count - 1, "max timestamp");
        check(listed(topic, OffsetSpec.forTimestamp(START_MS + 1_000)) == 1, "by timestamp");
        check(listed(topic, OffsetSpec.forTimestamp(START_MS + 1_000_000)) == -1, "after the last timestamp");
        TopicPartition partition = new TopicPartition(topic, 0);
        get(admin.deleteRecords(Map.of(partition, RecordsToDelete.beforeOffset(2))).all());
        check(listed(topic, OffsetSpec.earliest()) == 2, "earliest after a deletion");
        check(listed(topic, OffsetSpec.earliestLocal()) == 2, "earliest local after a deletion");
        check(listed(topic, OffsetSpec.latestTiered()) == -1, "nothing is tiered");
    }

    private void describesTheCluster() throws Exception {
        var nodes = get(admin.describeCluster().nodes());
        check(nodes.stream().anyMatch(node -> (node.host() + ":" + node.port()).equals(bootstrap)), "the broker is a node");
        check(!get(admin.describeCluster().clusterId()).isEmpty(), "the cluster has an id");
        var folders = get(admin.describeLogDirs(List.of(nodes.iterator().next().id())).allDescriptions());
        var replicas = folders.values().iterator().next().values().iterator().next().replicaInfos();
        check(replicas.get(new TopicPartition(prefix + "-records", 0)).size() > 1_000, "a log has its size");
    }

    private String create(String name, int partitions) throws Exception {
        String topic = prefix + "-" + name;
        get(admin.createTopics(List.of(new NewTopic(topic, partitions, (short) 1))).all());
        return topic;
    }

    private static List<ProducerRecord<byte[], byte[]>> records(String topic) {
        List<ProducerRecord<byte[], byte[]>> records = new ArrayList<>();
        long time = START_MS;
        records.add(new ProducerRecord<>(topic, 0, time, null, "no key".getBytes()));
        records.add(new ProducerRecord<>(topic, 0, time += 1_000, "tombstone".getBytes(), (byte[]) null));
        records.add(new ProducerRecord<>(topic, 0, time += 1_000, (byte[]) null, (byte[]) null, List.of(new RecordHeader("a", null))));
        records.add(new ProducerRecord<>(topic, 0, time += 1_000, new byte[0], new byte[0],
            List.of(new RecordHeader("same", new byte[] {1}), new RecordHeader("same", new byte[0]))));
        for (int size : SIZES_BYTES) {
            byte[] value = new byte[size];
            for (int index = 0; index < size; index++) {
                value[index] = (byte) (index * index % 251);
            }
            records.add(new ProducerRecord<>(topic, 0, time += 1_000, "key".getBytes(), value));
        }
        return records;
    }

    private void write(List<ProducerRecord<byte[], byte[]>> records, String codec, String acks, boolean idempotent)
            throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("acks", acks);
        settings.put("compression.type", codec);
        settings.put("enable.idempotence", String.valueOf(idempotent));
        settings.put("linger.ms", "5");
        try (var producer = new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer())) {
            List<Future<RecordMetadata>> answers = new ArrayList<>();
            for (ProducerRecord<byte[], byte[]> record : records) {
                answers.add(producer.send(record));
            }
            for (int index = 0; index < answers.size(); index++) {
                long offset = answers.get(index).get(DEADLINE_S, TimeUnit.SECONDS).offset();
                check(offset == (acks.equals("0") ? -1 : index), "record " + index + " was acked at " + offset);
            }
        }
    }

    private List<ConsumerRecord<byte[], byte[]>> read(String topic, long offset, int count) {
        List<ConsumerRecord<byte[], byte[]>> received = new ArrayList<>();
        try (var consumer = consumer()) {
            TopicPartition partition = new TopicPartition(topic, 0);
            consumer.assign(List.of(partition));
            consumer.seek(partition, offset);
            long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(DEADLINE_S);
            while (received.size() < count && System.nanoTime() < deadline) {
                consumer.poll(Duration.ofSeconds(1)).forEach(received::add);
            }
        }
        return received;
    }

    private long offsetAt(String topic, long timestamp) {
        try (var consumer = consumer()) {
            TopicPartition partition = new TopicPartition(topic, 0);
            return consumer.offsetsForTimes(Map.of(partition, timestamp)).get(partition).offset();
        }
    }

    private KafkaConsumer<byte[], byte[]> consumer() {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("enable.auto.commit", "false");
        settings.put("auto.offset.reset", "none");
        return new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    private static void same(
            List<ProducerRecord<byte[], byte[]>> sent,
            List<ConsumerRecord<byte[], byte[]>> received,
            int start,
            String what) {
        check(received.size() == sent.size() - start, what + ": " + received.size() + " records came");
        for (int index = 0; index < received.size(); index++) {
            ProducerRecord<byte[], byte[]> wanted = sent.get(start + index);
            ConsumerRecord<byte[], byte[]> had = received.get(index);
            check(had.offset() == start + index, what + ": offset " + had.offset());
            check(Arrays.equals(had.key(), wanted.key()), what + ": key of " + had.offset());
            check(Arrays.equals(had.value(), wanted.value()), what + ": value of " + had.offset());
            check(had.timestamp() == wanted.timestamp(), what + ": timestamp of " + had.offset());
            check(Arrays.equals(had.headers().toArray(), wanted.headers().toArray()), what + ": headers of " + had.offset());
        }
    }

    private long listed(String topic, OffsetSpec spec) throws Exception {
        TopicPartition partition = new TopicPartition(topic, 0);
        return get(admin.listOffsets(Map.of(partition, spec)).partitionResult(partition)).offset();
    }

    private Config describe(ConfigResource resource) throws Exception {
        return get(admin.describeConfigs(List.of(resource)).all()).get(resource);
    }

    private void alter(ConfigResource resource, String name, String value, AlterConfigOp.OpType operation)
            throws Exception {
        AlterConfigOp change = new AlterConfigOp(new ConfigEntry(name, value), operation);
        get(admin.incrementalAlterConfigs(Map.of(resource, List.of(change))).all());
    }

    private static <T> T get(KafkaFuture<T> future) throws Exception {
        return future.get(DEADLINE_S, TimeUnit.SECONDS);
    }

    private static void fails(Class<? extends Exception> expected, KafkaFuture<?> future) throws Exception {
        try {
            get(future);
        } catch (ExecutionException failure) {
            check(expected.isInstance(failure.getCause()), "expected " + expected + ", got " + failure.getCause());
            return;
        }
        check(false, "expected " + expected);
    }

    private static void check(boolean holds, String what) {
        if (!holds) {
            throw new AssertionError(what);
        }
    }
}
