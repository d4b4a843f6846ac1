import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Map;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;

/** An idempotent producer that writes each line of its input as it comes: java LinesWriter BOOTSTRAP TOPIC. */
public final class LinesWriter {
    public static void main(String[] arguments) throws Exception {
        var settings = Map.<String, Object>of("bootstrap.servers", arguments[0], "linger.ms", "0");
        var failures = new java.util.concurrent.ConcurrentLinkedQueue<Exception>();
        try (var producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
             var lines = new BufferedReader(new InputStreamReader(System.in))) {
            for (var line = lines.readLine(); line != null; line = lines.readLine()) {
                producer.send(new ProducerRecord<>(arguments[1], 0, null, line), (answer, failure) -> {
                    if (failure != null) {
                        failures.add(failure);
                    }
                });
            }
        }
        if (!failures.isEmpty()) {
            throw failures.peek();
        }
    }
}
