import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs Apache Kafka's command-line tools one after another in this one JVM.
 *
 * A line of input is a JSON array, the class of the tool and its arguments. A line of output is the JSON object of
 * what it did: its exit code, and what it printed on standard output and standard error.
 */
public final class ToolRunner {
    /** Without a trace: some tools catch it, print it, and exit once more. */
    private static final class Exited extends RuntimeException {
        Exited(String message) {
            super(message, null, false, false);
        }
    }

    private static Integer exitCode;

    public static void main(String[] ignored) throws Exception {
        var mapper = new ObjectMapper();
        var answers = System.out;
        Exit.setExitProcedure((code, message) -> {
            exitCode = exitCode == null ? code : exitCode;
            throw new Exited(message);
        });
        var lines = new BufferedReader(new InputStreamReader(System.in));
        for (var line = lines.readLine(); line != null; line = lines.readLine()) {
            var words = List.of(mapper.readValue(line, String[].class));
            var out = new ByteArrayOutputStream();
            var err = new ByteArrayOutputStream();
            System.setOut(new PrintStream(out, true));
            System.setErr(new PrintStream(err, true));
            var code = run(words.get(0), words.subList(1, words.size()).toArray(String[]::new));
            answers.println(mapper.writeValueAsString(
                Map.of("code", code, "out", out.toString(), "err", err.toString())));
            answers.flush();
        }
    }

    private static int run(String tool, String[] arguments) throws Exception {
        exitCode = null;
        try {
            Class.forName(tool).getMethod("main", String[].class).invoke(null, (Object) arguments);
            return 0;
        } catch (InvocationTargetException error) {
            if (exitCode == null) {
                error.getCause().printStackTrace();
            }
            return exitCode == null ? 1 : exitCode;
        }
    }
}
