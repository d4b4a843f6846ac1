// The Java client reads a partition from the first record on, and asks for the offsets of both tiers.
// Usage: java ReadCold BOOTSTRAP TOPIC ISOLATION_LEVEL COUNT. Prints six characters of each value, then the offsets.

import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

public final class ReadCold {
    private static final long DEADLINE_MS = 120_000;

    public static void main(String[] arguments) throws Exception {
        TopicPartition partition = new TopicPartition(arguments[1], 0);
        int wanted = Integer.parseInt(arguments[3]);
        Map<String, Object> settings = Map.of(
            "bootstrap.servers", arguments[0], "isolation.level", arguments[2], "auto.offset.reset", "none");
        StringBuilder printed = new StringBuilder();
        try (var consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            consumer.assign(List.of(partition));
            consumer.seek(partition, 0);
            long deadline = System.currentTimeMillis() + DEADLINE_MS;
            int found = 0;
            while (found < wanted && System.currentTimeMillis() < deadline) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(500))) {
                    printed.append(record.value(), 0, 6).append('\n');
                    found++;
                }
            }
            printed.append("earliest ").append(consumer.beginningOffsets(List.of(partition)).get(partition)).append('\n');
            printed.append("time 1 ").append(consumer.offsetsForTimes(Map.of(partition, 1L)).get(partition).offset());
        }
        try (Admin admin = Admin.create(Map.<String, Object>of("bootstrap.servers", arguments[0]))) {
            printed.append("\nlocal ").append(offset(admin, partition, OffsetSpec.earliestLocal()));
            printed.append("\ntiered ").append(offset(admin, partition, OffsetSpec.latestTiered()));
        }
        System.out.println(printed);
    }

    private static long offset(Admin admin, TopicPartition partition, OffsetSpec spec) throws Exception {
        return admin.listOffsets(Map.of(partition, spec)).partitionResult(partition).get().offset();
    }
}
