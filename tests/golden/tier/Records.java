// What Kafka's own code writes to __remote_log_metadata, and to which of its partitions: one JSON object a line.
//   javac -cp 'JARS/*' Records.java && java -cp 'JARS/*:.' Records > records.jsonl
import java.util.Arrays;
import java.util.Base64;
import java.util.HexFormat;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.server.log.remote.metadata.storage.RemoteLogMetadataTopicPartitioner;
import org.apache.kafka.server.log.remote.metadata.storage.serialization.RemoteLogMetadataSerde;
import org.apache.kafka.server.log.remote.storage.*;

public class Records {
    static void print(String kind, TopicIdPartition partition, Uuid id, RemoteLogMetadata metadata) {
        byte[] bytes = new RemoteLogMetadataSerde().serialize(metadata);
        int place = new RemoteLogMetadataTopicPartitioner(50).metadataPartition(partition);
        System.out.printf(
            "{\"kind\": \"%s\", \"topic_id\": \"%s\", \"partition\": %d, \"id\": \"%s\", \"place\": %d, \"value\": \"%s\"}%n",
            kind, partition.topicId(), partition.partition(), id, place, HexFormat.of().formatHex(bytes));
    }

    public static void main(String[] arguments) {
        for (int number = 0; number < 12; number++) {
            Uuid topicId = new Uuid(0x1234567890abcdefL * (number + 1), -0x0edcba9876543210L - 7919L * number);
            Uuid segmentId = new Uuid(42 + number, -42L * number - 1);
            TopicIdPartition partition = new TopicIdPartition(topicId, new TopicPartition("orders", number * 37));
            RemoteLogSegmentId id = new RemoteLogSegmentId(partition, segmentId);
            Map<Integer, Long> epochs = new TreeMap<>(Map.of(0, 100L, 3, 150L + number));
            byte[] custom = new byte[] {1, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 16, (byte) number, 0, 0, 0, 0, 0, 0, 0, 0};
            print("started", partition, segmentId, new RemoteLogSegmentMetadata(
                id, 100, 199, 1700000000000L, 7, 1700000001000L, 4096,
                Optional.of(new RemoteLogSegmentMetadata.CustomMetadata(custom)),
                RemoteLogSegmentState.COPY_SEGMENT_STARTED, epochs));
            print("finished", partition, segmentId, new RemoteLogSegmentMetadataUpdate(
                id, 1700000002000L, Optional.of(new RemoteLogSegmentMetadata.CustomMetadata(custom)),
                RemoteLogSegmentState.COPY_SEGMENT_FINISHED, 7));
            print("deletion", partition, segmentId, new RemotePartitionDeleteMetadata(
                partition, RemotePartitionDeleteState.DELETE_PARTITION_MARKED, 1700000003000L, 7));
        }
    }
}
