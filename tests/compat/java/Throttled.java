import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.Metric;
import org.apache.kafka.common.MetricName;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * A producer and a consumer that want more than their quotas let them.
 *
 * java Throttled BOOTSTRAP TOPIC COUNT writes and reads COUNT records of 1,000 bytes, and prints how many were read, how
 * long both took in ms, and the longest throttle that each was told of.
 */
public final class Throttled {
    public static void main(String[] arguments) throws Exception {
        var topic = arguments[1];
        var count = Integer.parseInt(arguments[2]);
        Map<String, Object> settings = Map.of("bootstrap.servers", arguments[0], "client.id", "throttled", "batch.size", 20000,
            "max.partition.fetch.bytes", 20000, "auto.offset.reset", "earliest");
        var began = System.nanoTime();
        double produceThrottle;
        try (var producer = new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer())) {
            for (var number = 0; number < count; number++) {
                producer.send(new ProducerRecord<>(topic, new byte[1000]));
            }
            producer.flush();
            produceThrottle = value(producer.metrics(), "produce-throttle-time-max");
        }
        var written = System.nanoTime();
        var read = 0;
        double fetchThrottle;
        try (var consumer = new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.assign(List.of(new TopicPartition(topic, 0)));
            while (read < count && System.nanoTime() - written < 60_000_000_000L) {
                read += consumer.poll(Duration.ofMillis(200)).count();
            }
            fetchThrottle = value(consumer.metrics(), "fetch-throttle-time-max");
        }
        var ended = System.nanoTime();
        System.out.printf("%d %d %d %.0f %.0f%n", read, (written - began) / 1_000_000, (ended - written) / 1_000_000,
            produceThrottle, fetchThrottle);
    }

    private static double value(Map<MetricName, ? extends Metric> metrics, String name) {
        return metrics.entrySet().stream().filter(each -> each.getKey().name().equals(name))
            .mapToDouble(each -> (Double) each.getValue().metricValue()).max().orElse(Double.NaN);
    }
}
