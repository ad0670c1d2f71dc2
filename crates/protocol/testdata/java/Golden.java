// Writes the golden bytes in the directory above with Kafka's own client library (see
// ../README.md for how to run it). Every value comes from a fixed seed: a second run writes the
// same messages (compressed batches may differ with the versions of the compressors).

import java.io.PrintWriter;
import java.lang.reflect.Method;
import java.lang.reflect.ParameterizedType;
import java.lang.reflect.Type;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HexFormat;
import java.util.List;
import java.util.Random;

import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.message.ApiMessageType;
import org.apache.kafka.common.message.RequestHeaderData;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.common.protocol.types.BoundField;
import org.apache.kafka.common.protocol.types.Field;
import org.apache.kafka.common.protocol.types.Schema;
import org.apache.kafka.common.protocol.types.TaggedFields;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.ControlRecordType;
import org.apache.kafka.common.record.internal.EndTransactionMarker;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MemoryRecordsBuilder;
import org.apache.kafka.common.record.internal.SimpleRecord;

public class Golden {
    static Random random;

    public static void main(String[] args) throws Exception {
        String out = args[0];
        try (PrintWriter w = new PrintWriter(out + "/messages.txt", "UTF-8")) {
            messages(w);
        }
        try (PrintWriter w = new PrintWriter(out + "/batches.txt", "UTF-8")) {
            batches(w);
        }
        try (PrintWriter w = new PrintWriter(out + "/tables.txt", "UTF-8")) {
            tables(w);
        }
    }

    // Error codes: number, name, whether retriable. API keys: number, name, versions (the last
    // stable one behind), whether a broker serves it.

    static void tables(PrintWriter w) {
        for (Errors e : Errors.values()) {
            boolean retriable = e.exception() instanceof RetriableException;
            w.println("error " + e.code() + " " + e.name() + " " + retriable);
        }
        for (ApiKeys k : ApiKeys.values()) {
            w.println("api " + k.id + " " + k.name + " " + k.oldestVersion() + " "
                + k.latestVersion(true) + " " + k.latestVersion(false) + " "
                + k.inScope(ApiMessageType.ListenerType.BROKER));
        }
    }

    // Messages: the last two versions of every API that a broker serves.

    static void messages(PrintWriter w) throws Exception {
        for (ApiKeys key : ApiKeys.values()) {
            if (!key.inScope(ApiMessageType.ListenerType.BROKER)) continue;
            ApiMessageType type = key.messageType;
            short last = type.highestSupportedVersion(true);
            for (short v = (short) Math.max(type.lowestSupportedVersion(), last - 1); v <= last; v++) {
                write(w, type.newRequest(), type.requestSchemas()[v], v);
                write(w, type.newResponse(), type.responseSchemas()[v], v);
            }
        }
        for (short v = 1; v <= 2; v++) {
            write(w, new RequestHeaderData(), RequestHeaderData.SCHEMAS[v], v);
        }
    }

    static void write(PrintWriter w, Message message, Schema schema, short version) throws Exception {
        String name = message.getClass().getSimpleName().replaceAll("Data$", "");
        random = new Random(name.hashCode() * 31L + version);
        fill(message, schema);
        w.println(name + " " + version + " " + hex(serialize(message, version)));
    }

    static ByteBuffer serialize(Message message, short version) {
        ObjectSerializationCache cache = new ObjectSerializationCache();
        ByteBuffer buffer = ByteBuffer.allocate(message.size(cache, version));
        message.write(new ByteBufferAccessor(buffer), cache, version);
        buffer.flip();
        return buffer;
    }

    static void fill(Object message, Schema schema) throws Exception {
        for (BoundField bound : schema.fields()) {
            if (bound.def.type instanceof TaggedFields) {
                for (Field field : ((TaggedFields) bound.def.type).fields().values()) {
                    if (random.nextInt(4) > 0) set(message, field);
                }
            } else {
                set(message, bound.def);
            }
        }
    }

    static void set(Object message, Field field) throws Exception {
        Method setter = setter(message.getClass(), field.name);
        Object value;
        boolean nullable = field.type.isNullable();
        if (nullable && !isRecords(field.type) && random.nextInt(5) == 0) {
            value = null;
        } else {
            value = value(setter.getGenericParameterTypes()[0], setter.getParameterTypes()[0], field.type);
        }
        setter.invoke(message, value);
    }

    // The schema calls records nullable even where the message does not.
    static boolean isRecords(org.apache.kafka.common.protocol.types.Type type) {
        return type == org.apache.kafka.common.protocol.types.Type.RECORDS
            || type == org.apache.kafka.common.protocol.types.Type.COMPACT_RECORDS;
    }

    static Method setter(Class<?> type, String snake) {
        String wanted = "set" + snake.replace("_", "");
        for (Method m : type.getMethods()) {
            if (m.getParameterCount() == 1 && m.getName().equalsIgnoreCase(wanted)) return m;
        }
        throw new IllegalStateException(type + " has no " + wanted);
    }

    @SuppressWarnings({"unchecked", "rawtypes"})
    static Object value(Type generic, Class<?> raw, org.apache.kafka.common.protocol.types.Type type)
            throws Exception {
        if (raw == boolean.class || raw == Boolean.class) return random.nextBoolean();
        if (raw == byte.class || raw == Byte.class) return (byte) random.nextInt();
        if (raw == short.class || raw == Short.class) return (short) random.nextInt();
        if (raw == int.class || raw == Integer.class) {
            return type == org.apache.kafka.common.protocol.types.Type.UINT16 ? random.nextInt(65536) : random.nextInt();
        }
        if (raw == long.class || raw == Long.class) return random.nextLong();
        if (raw == double.class || raw == Double.class) return random.nextInt() / 8.0;
        if (raw == String.class) return "s" + "äbc".repeat(random.nextInt(3)) + random.nextInt(100);
        if (raw == Uuid.class) return new Uuid(random.nextLong(), random.nextLong());
        if (raw == byte[].class) return bytes();
        if (raw == ByteBuffer.class) return ByteBuffer.wrap(bytes());
        if (raw.getSimpleName().equals("BaseRecords")) return MemoryRecords.readableRecords(ByteBuffer.wrap(bytes()));
        if (Collection.class.isAssignableFrom(raw)) {
            Type element = generic instanceof ParameterizedType
                ? ((ParameterizedType) generic).getActualTypeArguments()[0]
                : ((ParameterizedType) raw.getGenericSuperclass()).getActualTypeArguments()[0];
            Collection all = raw == List.class
                ? new ArrayList<>() : (Collection) raw.getConstructor().newInstance();
            int count = random.nextInt(8) == 0 ? 0 : 1 + random.nextInt(3);
            for (int i = 0; i < count; i++) {
                all.add(value(element, (Class<?>) element, type.arrayElementType().get()));
            }
            return all;
        }
        Object nested = raw.getConstructor().newInstance();
        fill(nested, (Schema) type);
        return nested;
    }

    static byte[] bytes() {
        byte[] bytes = new byte[random.nextInt(20)];
        random.nextBytes(bytes);
        return bytes;
    }

    // Batches: what is in them is stated in golden.rs.

    static void batches(PrintWriter w) {
        Compression[] codecs = {Compression.NONE, Compression.gzip().build(),
            Compression.snappy().build(), Compression.lz4().build(), Compression.zstd().build()};
        String[] names = {"none", "gzip", "snappy", "lz4", "zstd"};
        for (int i = 0; i < codecs.length; i++) {
            MemoryRecordsBuilder b = MemoryRecords.builder(ByteBuffer.allocate(256), (byte) 2,
                codecs[i], TimestampType.CREATE_TIME, 100L, -1L, 7L, (short) 3, 40, false, 5);
            plain(b);
            w.println(names[i] + " " + hex(b.build().buffer()));
        }
        MemoryRecordsBuilder append = MemoryRecords.builder(ByteBuffer.allocate(256), (byte) 2,
            codecs[0], TimestampType.LOG_APPEND_TIME, 0L, 9999L, -1L, (short) -1, -1, false, -1);
        plain(append);
        w.println("append_time " + hex(append.build().buffer()));
        MemoryRecordsBuilder txn = MemoryRecords.builder(ByteBuffer.allocate(256), (byte) 2,
            codecs[0], TimestampType.CREATE_TIME, 0L, -1L, 7L, (short) 3, 0, true, -1);
        plain(txn);
        w.println("transactional " + hex(txn.build().buffer()));
        MemoryRecordsBuilder control = MemoryRecords.builder(ByteBuffer.allocate(256), (byte) 2,
            codecs[0], TimestampType.CREATE_TIME, 12L, -1L, 7L, (short) 3, -1, true, true, -1);
        control.appendEndTxnMarker(1234L, new EndTransactionMarker(ControlRecordType.COMMIT, 17));
        w.println("control " + hex(control.build().buffer()));
        for (byte magic = 0; magic <= 1; magic++) {
            w.println("magic" + magic + " " + hex(MemoryRecords.withRecords(magic, codecs[0],
                new SimpleRecord(1L, "k".getBytes(), "v".getBytes())).buffer()));
        }
    }

    // Twelve records, one second apart but the fifth, which is the latest.
    static void plain(MemoryRecordsBuilder b) {
        for (int i = 0; i < 12; i++) {
            long timestamp = i == 4 ? 1_700_000_100_000L : 1_700_000_000_000L + 1000L * i;
            byte[] key = i % 3 == 2 ? null : ("key" + i).getBytes();
            byte[] value = i % 4 == 3 ? null : ("value " + i + " ").repeat(i * 20).getBytes();
            Header[] headers = i % 5 != 0 ? new Header[0] : new Header[] {
                new RecordHeader("h" + i, ("x" + i).getBytes()), new RecordHeader("null", (byte[]) null)};
            b.append(timestamp, key, value, headers);
        }
    }

    static String hex(ByteBuffer buffer) {
        byte[] bytes = new byte[buffer.remaining()];
        buffer.duplicate().get(bytes);
        return HexFormat.of().formatHex(bytes);
    }
}
