import java.util.Random;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.common.metrics.MetricConfig;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.Quota;
import org.apache.kafka.common.metrics.QuotaViolationException;
import org.apache.kafka.common.metrics.Sensor;
import org.apache.kafka.common.metrics.stats.Rate;
import org.apache.kafka.common.metrics.stats.TokenBucket;
import org.apache.kafka.server.quota.ControllerMutationQuotaManager;
import org.apache.kafka.server.quota.QuotaUtils;

/**
 * What Kafka's own classes make of random use under random quotas: one JSON line for each sequence, of
 * [kind, samples, window in seconds, bound, [[milliseconds, value, throttle time], ...]].
 * java -cp 'JARS/*' Arithmetic.java > arithmetic.jsonl
 */
public class Arithmetic {
    static final long START_MS = 1_767_225_600_000L;

    public static void main(String[] arguments) {
        for (int seed = 0; seed < 40; seed++) {
            for (String kind : new String[] {"rate", "permissive", "strict"}) {
                System.out.println(sequence(new Random(seed), kind));
            }
        }
    }

    static String sequence(Random random, String kind) {
        int samples = new int[] {2, 3, 11, 11}[random.nextInt(4)];
        int seconds = new int[] {1, 1, 5}[random.nextInt(3)];
        double bound = new double[] {1, 0.25, 10, 100000}[random.nextInt(4)];
        MetricConfig config = new MetricConfig().timeWindow(seconds, TimeUnit.SECONDS).samples(samples)
            .quota(new Quota(bound, true));
        Metrics metrics = new Metrics();
        Sensor sensor = metrics.sensor("sensor");
        sensor.add(metrics.metricName("used", "golden"), kind.equals("rate") ? new Rate() : new TokenBucket(), config);
        StringBuilder told = new StringBuilder();
        long now = START_MS;
        for (int event = 0; event < 60; event++) {
            // Bursts, a steady use, and pauses that are longer than all windows.
            int pause = random.nextInt(10);
            now += pause < 4 ? 0 : random.nextInt(pause < 7 ? 900 : pause < 9 ? 4000 : 90000);
            double value = Math.round(bound * seconds * random.nextInt(40)) / 4.0;
            long throttle = 0;
            try {
                if (kind.equals("strict")) {
                    sensor.checkQuotas(now);
                    sensor.record(value, now, false);
                } else {
                    sensor.record(value, now, true);
                }
            } catch (QuotaViolationException violation) {
                throttle = kind.equals("rate") ? QuotaUtils.throttleTime(violation, now)
                    : ControllerMutationQuotaManager.throttleTimeMs(violation);
            }
            told.append(event == 0 ? "" : ",").append("[" + (now - START_MS) + "," + value + "," + throttle + "]");
        }
        metrics.close();
        return "[\"" + kind + "\"," + samples + "," + seconds + "," + bound + ",[" + told + "]]";
    }
}
