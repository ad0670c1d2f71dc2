import java.util.List;
import java.util.Map;

/** Just enough JSON to print one line per event; maps, lists, strings, numbers, booleans, null. */
final class Json {
    private Json() {}

    static void print(Object value) {
        StringBuilder out = new StringBuilder();
        write(out, value);
        synchronized (System.out) {
            System.out.println(out);
            System.out.flush();
        }
    }

    private static void write(StringBuilder out, Object value) {
        if (value == null || value instanceof Number || value instanceof Boolean) {
            out.append(value);
        } else if (value instanceof Map) {
            out.append('{');
            String comma = "";
            for (Map.Entry<?, ?> entry : ((Map<?, ?>) value).entrySet()) {
                out.append(comma);
                write(out, String.valueOf(entry.getKey()));
                out.append(':');
                write(out, entry.getValue());
                comma = ",";
            }
            out.append('}');
        } else if (value instanceof List) {
            out.append('[');
            String comma = "";
            for (Object item : (List<?>) value) {
                out.append(comma);
                write(out, item);
                comma = ",";
            }
            out.append(']');
        } else {
            string(out, value.toString());
        }
    }

    private static void string(StringBuilder out, String text) {
        out.append('"');
        for (char c : text.toCharArray()) {
            if (c == '"' || c == '\\') {
                out.append('\\').append(c);
            } else if (c < ' ') {
                out.append(String.format("\\u%04x", (int) c));
            } else {
                out.append(c);
            }
        }
        out.append('"');
    }
}
