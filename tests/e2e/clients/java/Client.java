import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.common.protocol.Errors;

/**
 * End-to-end client program: {@code Client VERB BOOTSTRAP name=value...}. Prints JSON lines; the
 * last one is {@code {"ok":true,...}} or {@code {"ok":false,"code":N,"error":"..."}} with Kafka's
 * error number. The same source is compiled against each client version under test.
 */
public final class Client {
    private Client() {}

    public static void main(String[] argv) throws Exception {
        if (argv[0].equals("session")) {
            session(argv[1]);
        } else {
            Json.print(answer(argv[0], argv[1], new Args(argv, 2)));
        }
        System.exit(0);
    }

    /** A verb with its arguments on each line of standard input, parted by tabs: one start of Java for many verbs. */
    private static void session(String bootstrap) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split("\t");
            Json.print(answer(words[0], bootstrap, new Args(words, 1)));
        }
    }

    private static Map<String, Object> answer(String verb, String bootstrap, Args args) {
        Map<String, Object> result = new LinkedHashMap<>();
        result.put("ok", true);
        try {
            switch (verb) {
                case "produce": Data.produce(bootstrap, args, result); break;
                case "consume": Data.consume(bootstrap, args, result); break;
                case "commit": Data.commit(bootstrap, args); break;
                case "committed": Data.committed(bootstrap, args, result); break;
                case "member": Member.run(bootstrap, args); break;
                default: Admins.run(verb, bootstrap, args, result);
            }
        } catch (Exception e) {
            failure(result, e);
        }
        return result;
    }

    /** Turns the answer into a failure that carries Kafka's error number, -1 if it is none. */
    static void failure(Map<String, Object> result, Throwable error) {
        Throwable cause = error;
        while (cause.getCause() != null && !(cause instanceof org.apache.kafka.common.errors.ApiException)) {
            cause = cause.getCause();
        }
        result.put("ok", false);
        result.put("code", code(cause));
        result.put("error", cause.toString());
    }

    static int code(Throwable cause) {
        if (cause instanceof org.apache.kafka.clients.consumer.OffsetOutOfRangeException) {
            return Errors.OFFSET_OUT_OF_RANGE.code();
        }
        if (cause instanceof org.apache.kafka.clients.consumer.CommitFailedException) {
            return Errors.UNKNOWN_MEMBER_ID.code();
        }
        return Errors.forException(cause).code();
    }

    static Properties props(String bootstrap) {
        Properties props = new Properties();
        props.put("bootstrap.servers", bootstrap);
        props.put("request.timeout.ms", "20000");
        props.put("default.api.timeout.ms", "30000");
        return props;
    }
}
