import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.regex.Pattern;
import java.util.stream.Collectors;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

/**
 * A member of a group that keeps the journal of tests/compat/groups/journal.py:
 * java GroupMember BOOTSTRAP GROUP TOPIC SETTINGS, where the settings are a flat JSON object of strings.
 */
public final class GroupMember implements ConsumerRebalanceListener {
    private static final long COMMIT_EVERY_NS = 100_000_000L;
    private static final Pattern SETTING = Pattern.compile("\"([^\"]+)\"\\s*:\\s*\"([^\"]*)\"");

    private final AtomicBoolean isClosing = new AtomicBoolean();
    private final Map<TopicPartition, OffsetAndMetadata> positions = new HashMap<>();
    private final KafkaConsumer<String, String> consumer;
    private long lastCommit = System.nanoTime();

    public static void main(String[] arguments) throws Exception {
        new GroupMember(arguments).run();
    }

    private GroupMember(String[] arguments) {
        var settings = new HashMap<String, Object>(Map.of(
            "bootstrap.servers", arguments[0],
            "group.id", arguments[1],
            "enable.auto.commit", "false",
            "auto.offset.reset", "earliest",
            "fetch.max.wait.ms", "50",
            "retry.backoff.ms", "20",
            "reconnect.backoff.max.ms", "200",
            "metadata.max.age.ms", "500"));
        var given = SETTING.matcher(arguments[3]);
        while (given.find()) {
            settings.put(given.group(1), given.group(2));
        }
        if (!"consumer".equals(settings.get("group.protocol"))) {
            settings.put("heartbeat.interval.ms", "100");
            settings.put("session.timeout.ms", "4000");
        }
        consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
        consumer.subscribe(List.of(arguments[2]), this);
        var watcher = new Thread(() -> {
            try {
                System.in.read();
            } catch (java.io.IOException gone) {
                // The life line is cut, which is what it is there for.
            }
            isClosing.set(true);
        });
        watcher.setDaemon(true);
        watcher.start();
    }

    private void run() {
        while (!isClosing.get()) {
            var polled = consumer.poll(Duration.ofMillis(50));
            if (!polled.isEmpty()) {
                var read = new ArrayList<String>();
                for (var record : polled) {
                    read.add("[" + record.partition() + "," + record.offset() + "," + record.value() + "]");
                    positions.put(
                        new TopicPartition(record.topic(), record.partition()), new OffsetAndMetadata(record.offset() + 1));
                }
                write("read", String.join(",", read));
            }
            if (System.nanoTime() > lastCommit + COMMIT_EVERY_NS) {
                commit();
            }
        }
        // Closing gives the partitions back, through the listener, before the group is left.
        consumer.close();
        System.exit(0);
    }

    private void commit() {
        lastCommit = System.nanoTime();
        if (positions.isEmpty()) {
            return;
        }
        try {
            consumer.commitSync(positions);
        } catch (KafkaException error) {
            write("said", '"' + error.getClass().getSimpleName() + '"');
            return;
        }
        var sorted = new TreeMap<Integer, Long>();
        positions.forEach((partition, offset) -> sorted.put(partition.partition(), offset.offset()));
        write("committed", sorted.entrySet().stream()
            .map(each -> "[" + each.getKey() + "," + each.getValue() + "]").collect(Collectors.joining(",")));
        positions.clear();
    }

    @Override
    public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
        write("assigned", listed(partitions));
    }

    @Override
    public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
        commit();
        partitions.forEach(positions::remove);
        write("revoked", listed(partitions));
    }

    @Override
    public void onPartitionsLost(Collection<TopicPartition> partitions) {
        partitions.forEach(positions::remove);
        write("lost", listed(partitions));
    }

    private static String listed(Collection<TopicPartition> partitions) {
        return partitions.stream().map(each -> String.valueOf(each.partition())).collect(Collectors.joining(","));
    }

    private static void write(String kind, String what) {
        System.out.println("[\"" + kind + "\"," + System.nanoTime() + ",[" + what + "]]");
        System.out.flush();
    }
}
