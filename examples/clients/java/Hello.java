// Apache Kafka's own client: three records written, and read as a member of a group.
// Usage: mvn -q dependency:copy-dependencies -DoutputDirectory=jars && java -cp 'jars/*' Hello.java [BOOTSTRAP]
import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public class Hello {
    public static void main(String[] arguments) {
        String bootstrap = arguments.length > 0 ? arguments[0] : "127.0.0.1:9092";

        Map<String, Object> writing = Map.of("bootstrap.servers", bootstrap);
        try (var producer = new KafkaProducer<>(writing, new StringSerializer(), new StringSerializer())) {
            for (int number = 0; number < 3; number++) {
                producer.send(new ProducerRecord<>("greetings", "ann", "hello " + number));
            }
        }

        Map<String, Object> reading = Map.of(
            "bootstrap.servers", bootstrap, "group.id", "readers", "auto.offset.reset", "earliest");
        try (var consumer = new KafkaConsumer<>(reading, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of("greetings"));
            for (int read = 0; read < 3; ) {
                for (var record : consumer.poll(Duration.ofSeconds(1))) {
                    System.out.printf("%d:%d %s %s%n", record.partition(), record.offset(), record.key(), record.value());
                    read++;
                }
            }
        }
    }
}
