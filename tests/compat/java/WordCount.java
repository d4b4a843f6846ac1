import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;

/**
 * Counts words: bootstrap servers, application id, `classic` or `streams`, state folder, the topics of lines and of
 * counts, and further settings as name=value. Each word makes a new count, exactly once, and all counts are written.
 *
 * Says `state X` when its state changes, `tasks A S` with its active and standby tasks twice a second when they have
 * changed, and `failed X` for what ends it. Stops when its standard input ends; with `leave` on it, it leaves its group.
 */
public final class WordCount {
    public static void main(String[] args) throws Exception {
        var settings = new Properties();
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, args[0]);
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, args[1]);
        settings.put(StreamsConfig.GROUP_PROTOCOL_CONFIG, args[2]);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, Path.of(args[3]).toString());
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        settings.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        settings.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 0);
        settings.put("auto.offset.reset", "earliest");
        for (var pair : List.of(args).subList(6, args.length)) {
            settings.put(pair.substring(0, pair.indexOf('=')), pair.substring(pair.indexOf('=') + 1));
        }
        var builder = new StreamsBuilder();
        builder.<String, String>stream(args[4])
            .flatMapValues(line -> List.of(line.split(" ")))
            .groupBy((key, word) -> word, Grouped.as("by-word"))
            .count(Materialized.as("counts"))
            .toStream()
            .mapValues(String::valueOf)
            .to(args[5], Produced.with(Serdes.String(), Serdes.String()));
        var streams = new KafkaStreams(builder.build(), settings);
        streams.setStateListener((now, before) -> System.out.println("state " + now));
        streams.setUncaughtExceptionHandler(error -> {
            System.out.println("failed " + error);
            return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
        streams.start();
        var watcher = new Thread(() -> watch(streams));
        watcher.setDaemon(true);
        watcher.start();
        var said = new String(System.in.readAllBytes());
        var options = new KafkaStreams.CloseOptions().timeout(Duration.ofSeconds(30)).leaveGroup(said.contains("leave"));
        streams.close(options);
        System.out.println("closed");
    }

    private static void watch(KafkaStreams streams) {
        var told = "";
        while (true) {
            var active = 0;
            var standby = 0;
            for (var thread : streams.metadataForLocalThreads()) {
                active += thread.activeTasks().size();
                standby += thread.standbyTasks().size();
            }
            var tasks = "tasks " + active + " " + standby;
            if (!tasks.equals(told)) {
                System.out.println(tasks);
                told = tasks;
            }
            try {
                Thread.sleep(500);
            } catch (InterruptedException stopped) {
                return;
            }
        }
    }
}
