import java.io.BufferedReader;
import java.io.FileReader;
import java.io.InputStreamReader;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * An idempotent producer that writes each line of its input as it comes: java LinesWriter BOOTSTRAP TOPIC [PROPERTIES].
 */
public final class LinesWriter {
    public static void main(String[] arguments) throws Exception {
        var settings = new Properties();
        settings.putAll(Map.of("bootstrap.servers", arguments[0], "linger.ms", "0"));
        if (arguments.length > 2) {
            try (var file = new FileReader(arguments[2])) {
                settings.load(file);
            }
        }
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
