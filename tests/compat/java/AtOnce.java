import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.stream.IntStream;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Transactional producers that leave no time between two transactions: the markers of a commit over many partitions are
 * still being written when the next transaction has begun, was written to, and is ended.
 *
 * java AtOnce BOOTSTRAP TOPIC PARTITIONS PRODUCERS ROUNDS says how many of the producers died, and why, and whether what
 * is committed, and nothing else, can be read.
 */
public final class AtOnce {
    private static final String ABORTED = "aborted";

    public static void main(String[] arguments) throws Exception {
        var bootstrap = arguments[0];
        var topic = arguments[1];
        var partitions = Integer.parseInt(arguments[2]);
        var producers = Integer.parseInt(arguments[3]);
        var rounds = Integer.parseInt(arguments[4]);
        var threads = Executors.newFixedThreadPool(producers);
        List<Callable<Void>> work = IntStream.range(0, producers)
            .<Callable<Void>>mapToObj(number -> () -> write(bootstrap, topic, partitions, topic + number, rounds))
            .toList();
        var died = 0;
        for (Future<Void> each : threads.invokeAll(work)) {
            try {
                each.get();
            } catch (Exception error) {
                died++;
                System.out.println(error.getCause());
            }
        }
        threads.shutdown();
        System.out.println("died " + died + " of " + producers);
        if (died == 0) {
            var read = read(bootstrap, topic, partitions);
            var expected = producers * rounds * partitions;
            var isExact = read.size() == expected && new HashSet<>(read).size() == expected;
            System.out.println((isExact ? "exact " : "wrong ") + read.size() + " of " + expected);
        }
    }

    private static Void write(String bootstrap, String topic, int partitions, String id, int rounds) throws Exception {
        var settings = new HashMap<String, Object>(Map.of("bootstrap.servers", bootstrap, "transactional.id", id));
        settings.put("linger.ms", "0");
        try (var producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            producer.initTransactions();
            for (var round = 0; round < rounds; round++) {
                producer.beginTransaction();
                for (var partition = 0; partition < partitions; partition++) {
                    var value = id + ":" + round + ":" + partition;
                    producer.send(new ProducerRecord<>(topic, partition, null, value));
                }
                producer.commitTransaction();
                producer.beginTransaction();
                if (round % 3 < 2) {
                    producer.send(new ProducerRecord<>(topic, round % partitions, null, ABORTED));
                }
                producer.abortTransaction();
                if (round % 3 > 0) {
                    producer.beginTransaction();
                    producer.abortTransaction();
                }
            }
        }
        return null;
    }

    private static List<String> read(String bootstrap, String topic, int partitions) {
        var settings = Map.<String, Object>of("bootstrap.servers", bootstrap, "isolation.level", "read_committed");
        List<TopicPartition> places =
            IntStream.range(0, partitions).mapToObj(index -> new TopicPartition(topic, index)).toList();
        List<String> values = new ArrayList<>();
        try (var consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            consumer.assign(places);
            consumer.seekToBeginning(places);
            var ends = consumer.endOffsets(places);
            while (places.stream().anyMatch(place -> consumer.position(place) < ends.get(place))) {
                consumer.poll(Duration.ofMillis(100)).forEach(record -> values.add(record.value()));
            }
        }
        return values;
    }
}
