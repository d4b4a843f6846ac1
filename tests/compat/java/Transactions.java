import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.IntStream;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * A transactional producer that keeps a journal, as tests/compat/transactions/writer.py does, and a consumer of what is
 * committed: java Transactions write BOOTSTRAP TOPIC ID FIRST, java Transactions read BOOTSTRAP TOPIC PARTITIONS.
 */
public final class Transactions {
    private static final int RECORDS = 8;
    private static final int PARTITIONS = 2;

    public static void main(String[] arguments) throws Exception {
        if (arguments[0].equals("write")) {
            write(arguments[1], arguments[2], arguments[3], Integer.parseInt(arguments[4]));
        } else {
            read(arguments[1], arguments[2], Integer.parseInt(arguments[3]));
        }
    }

    private static void write(String bootstrap, String topic, String id, int first) throws Exception {
        var settings = new HashMap<String, Object>(Map.of("bootstrap.servers", bootstrap, "transactional.id", id));
        settings.put("linger.ms", "0");
        try (var producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            producer.initTransactions();
            for (var transaction = first; System.in.available() == 0; transaction++) {
                producer.beginTransaction();
                say("begun " + transaction);
                for (var index = 0; index < RECORDS; index++) {
                    producer.send(new ProducerRecord<>(topic, index % PARTITIONS, null, transaction + ":" + index));
                }
                if (transaction % 3 == 2) {
                    producer.abortTransaction();
                } else {
                    producer.commitTransaction();
                }
                say("ended " + transaction);
            }
        }
    }

    private static void read(String bootstrap, String topic, int partitions) {
        var settings = Map.<String, Object>of("bootstrap.servers", bootstrap, "isolation.level", "read_committed");
        List<TopicPartition> places =
            IntStream.range(0, partitions).mapToObj(index -> new TopicPartition(topic, index)).toList();
        try (var consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            consumer.assign(places);
            consumer.seekToBeginning(places);
            var ends = consumer.endOffsets(places);
            while (places.stream().anyMatch(place -> consumer.position(place) < ends.get(place))) {
                consumer.poll(Duration.ofMillis(100)).forEach(record -> System.out.println(record.value()));
            }
        }
    }

    private static void say(String line) {
        System.out.println(line);
        System.out.flush();
    }
}
