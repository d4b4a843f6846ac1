import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

/** Prints key and the beginning of the value of the first COUNT records of partition 0: BOOTSTRAP TOPIC COUNT. */
public final class ReadTopic {
    public static void main(String[] words) {
        int left = Integer.parseInt(words[2]);
        Map<String, Object> settings = Map.of("bootstrap.servers", words[0], "auto.offset.reset", "none");
        StringDeserializer text = new StringDeserializer();
        try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(settings, text, text)) {
            TopicPartition partition = new TopicPartition(words[1], 0);
            consumer.assign(List.of(partition));
            consumer.seek(partition, 0);
            while (left > 0) {
                for (ConsumerRecord<String, String> each : consumer.poll(Duration.ofSeconds(60))) {
                    if (left-- > 0) {
                        System.out.println(each.key() + " " + each.value().substring(0, 6));
                    }
                }
            }
        }
    }
}
