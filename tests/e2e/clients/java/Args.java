import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** The {@code name=value} arguments of a verb. */
final class Args {
    private final Map<String, String> values = new LinkedHashMap<>();

    Args(String[] argv, int from) {
        for (int i = from; i < argv.length; i++) {
            int eq = argv[i].indexOf('=');
            if (eq < 0) {
                throw new IllegalArgumentException("argument without '=': " + argv[i]);
            }
            values.put(argv[i].substring(0, eq), argv[i].substring(eq + 1));
        }
    }

    boolean has(String name) {
        return values.containsKey(name);
    }

    String str(String name) {
        String value = values.get(name);
        if (value == null) {
            throw new IllegalArgumentException("missing argument " + name);
        }
        return value;
    }

    String str(String name, String fallback) {
        return values.getOrDefault(name, fallback);
    }

    int integer(String name, int fallback) {
        return has(name) ? Integer.parseInt(str(name)) : fallback;
    }

    long longer(String name, long fallback) {
        return has(name) ? Long.parseLong(str(name)) : fallback;
    }

    boolean flag(String name) {
        return Boolean.parseBoolean(str(name, "false"));
    }

    List<String> list(String name) {
        List<String> out = new ArrayList<>();
        for (String part : str(name, "").split(",")) {
            if (!part.isEmpty()) {
                out.add(part);
            }
        }
        return out;
    }

    /** {@code a=b,c=d} as a map. */
    Map<String, String> map(String name) {
        Map<String, String> out = new LinkedHashMap<>();
        for (String part : list(name)) {
            int eq = part.indexOf('=');
            out.put(part.substring(0, eq), part.substring(eq + 1));
        }
        return out;
    }
}
