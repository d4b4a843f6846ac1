import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * Members of share groups in one JVM, told line by line on standard input what to do; ends with its input.
 *
 * <pre>
 * join BOOTSTRAP TOPIC GROUP MEMBERS   "joined N" once each member has been given records and has accepted them: N in all
 * empty RECORDS                        "emptied SECONDS" once so many more are accepted; then the members leave
 * </pre>
 *
 * A member that has joined waits for the others, so that all of them begin to empty at the same moment.
 */
public class QueueMembers {
    private static final Duration POLL = Duration.ofMillis(100);

    private final AtomicLong received = new AtomicLong();
    private final CountDownLatch joined;
    private final CountDownLatch begun = new CountDownLatch(1);
    private final List<Thread> members = new ArrayList<>();
    private volatile long wanted = Long.MAX_VALUE;
    private final AtomicLong lastNanos = new AtomicLong();
    private volatile Throwable failure;

    QueueMembers(String bootstrap, String topic, String group, int count) {
        joined = new CountDownLatch(count);
        Map<String, Object> settings = Map.of("bootstrap.servers", bootstrap, "group.id", group);
        for (int number = 0; number < count; number++) {
            Thread member = new Thread(() -> work(settings, topic));
            members.add(member);
            member.start();
        }
    }

    private void work(Map<String, Object> settings, String topic) {
        var bytes = new ByteArrayDeserializer();
        try (var consumer = new KafkaShareConsumer<>(settings, bytes, bytes)) {
            consumer.subscribe(List.of(topic));
            while (take(consumer) == 0) {}
            consumer.commitSync();
            joined.countDown();
            begun.await();
            boolean hasRecords = false;
            while (received.get() < wanted) {
                hasRecords = take(consumer) > 0;
            }
            if (hasRecords) {
                consumer.commitSync();
                lastNanos.accumulateAndGet(System.nanoTime(), Math::max);
            }
        } catch (Throwable error) {
            failure = error;
            while (joined.getCount() > 0) joined.countDown();
        }
    }

    /** What the poll before gave is accepted by this one. */
    private int take(KafkaShareConsumer<byte[], byte[]> consumer) {
        int count = consumer.poll(POLL).count();
        received.addAndGet(count);
        return count;
    }

    long join() throws Throwable {
        joined.await();
        if (failure != null) throw failure;
        return received.get();
    }

    double empty(long records) throws Throwable {
        wanted = received.get() + records;
        long beganNanos = System.nanoTime();
        begun.countDown();
        for (Thread member : members) member.join();
        if (failure != null) throw failure;
        return (lastNanos.get() - beganNanos) / 1e9;
    }

    public static void main(String[] arguments) throws Throwable {
        var input = new BufferedReader(new InputStreamReader(System.in));
        QueueMembers queue = null;
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.split(" ");
            if (words[0].equals("join")) {
                queue = new QueueMembers(words[1], words[2], words[3], Integer.parseInt(words[4]));
                System.out.println("joined " + queue.join());
            } else {
                System.out.println("emptied " + queue.empty(Long.parseLong(words[1])));
            }
        }
        System.exit(0);
    }
}
