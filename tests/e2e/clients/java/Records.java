import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;

/**
 * The records that every client program makes the same way from (seed, index), and the digest by
 * which the harness compares what one client sent with what another one read.
 */
final class Records {
    private final String shape;
    private final long seed;
    private final List<Integer> sizes = new ArrayList<>();
    private final boolean nullHeaders;

    Records(Args args) {
        shape = args.str("shape", "mixed");
        seed = args.longer("seed", 0);
        for (String size : args.list("sizes")) {
            sizes.add(Integer.parseInt(size));
        }
        if (sizes.isEmpty()) {
            sizes.add(100);
        }
        nullHeaders = args.str("null_headers", "true").equals("true");
    }

    byte[] key(int i) {
        switch (shape) {
            case "mixed": return i % 4 == 0 && i % 5 != 4 ? null : utf8("key-" + i % 16);
            case "keyed": return utf8("key-" + i % 16);
            default: return utf8("k" + i);
        }
    }

    byte[] value(int i) {
        if (shape.equals("mixed") && i % 5 == 4) {
            return null;
        }
        byte[] out = new byte[sizes.get(i % sizes.size())];
        for (int j = 0; j < out.length; j++) {
            out[j] = (byte) (seed + 31L * i + 7L * j);
        }
        return out;
    }

    List<Header> headers(int i) {
        List<Header> out = new ArrayList<>();
        if (shape.equals("mixed")) {
            for (int k = 0; k < i % 3; k++) {
                out.add(new RecordHeader("h" + k, k == 1 && nullHeaders ? null : utf8("v" + i)));
            }
        }
        return out;
    }

    static byte[] utf8(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    /** First and last offset, count and running digest, for each partition. */
    static final class Seen {
        private final Map<Integer, MessageDigest> digests = new LinkedHashMap<>();
        private final Map<String, Object> partitions = new LinkedHashMap<>();

        void add(int partition, long offset, byte[] key, byte[] value, Iterable<Header> headers) throws Exception {
            MessageDigest digest = digests.get(partition);
            if (digest == null) {
                digest = MessageDigest.getInstance("SHA-256");
                digests.put(partition, digest);
            }
            bytes(digest, key);
            bytes(digest, value);
            List<Header> all = new ArrayList<>();
            headers.forEach(all::add);
            digest.update(ByteBuffer.allocate(4).putInt(all.size()).array());
            for (Header header : all) {
                bytes(digest, utf8(header.key()));
                bytes(digest, header.value());
            }
            @SuppressWarnings("unchecked")
            Map<String, Object> entry = (Map<String, Object>) partitions.computeIfAbsent(
                String.valueOf(partition), p -> new LinkedHashMap<String, Object>());
            entry.putIfAbsent("first", offset);
            entry.put("last", offset);
            entry.merge("count", 1L, (a, b) -> (Long) a + (Long) b);
        }

        Map<String, Object> result() {
            for (Map.Entry<Integer, MessageDigest> entry : digests.entrySet()) {
                StringBuilder hex = new StringBuilder();
                for (byte b : entry.getValue().digest()) {
                    hex.append(String.format("%02x", b));
                }
                @SuppressWarnings("unchecked")
                Map<String, Object> out = (Map<String, Object>) partitions.get(String.valueOf(entry.getKey()));
                out.put("digest", hex.toString());
            }
            return partitions;
        }

        private static void bytes(MessageDigest digest, byte[] bytes) {
            digest.update(ByteBuffer.allocate(4).putInt(bytes == null ? -1 : bytes.length).array());
            if (bytes != null) {
                digest.update(bytes);
            }
        }
    }
}
