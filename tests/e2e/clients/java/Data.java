import java.time.Duration;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Producing, reading by position, and committed offsets. */
final class Data {
    private Data() {}

    static void produce(String bootstrap, Args args, Map<String, Object> result) throws Exception {
        Properties props = Client.props(bootstrap);
        props.put("acks", args.str("acks", "all"));
        props.put("enable.idempotence", args.str("idempotent", "false"));
        props.put("compression.type", args.str("codec", "none"));
        props.put("max.request.size", "20000000");
        props.put("buffer.memory", "67108864");
        props.put("linger.ms", args.str("linger_ms", "5"));
        props.put("batch.size", args.str("batch_size", "16384"));
        props.put("delivery.timeout.ms", "40000");
        Records records = new Records(args);
        String topic = args.str("topic");
        Integer partition = args.has("partition") ? args.integer("partition", 0) : null;
        int count = args.integer("count", 1);
        int failed = 0;
        Records.Seen seen = new Records.Seen();
        try (KafkaProducer<byte[], byte[]> producer =
                 new KafkaProducer<>(props, new ByteArraySerializer(), new ByteArraySerializer())) {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (int i = 0; i < count; i++) {
                Long time = args.has("ts_base")
                    ? args.longer("ts_base", 0) + i * args.longer("ts_step", 1) : null;
                sent.add(producer.send(new ProducerRecord<>(
                    topic, partition, time, records.key(i), records.value(i), records.headers(i))));
            }
            producer.flush();
            for (int i = 0; i < count; i++) {
                try {
                    RecordMetadata meta = sent.get(i).get();
                    seen.add(meta.partition(), meta.offset(), records.key(i), records.value(i), records.headers(i));
                } catch (Exception e) {
                    failed++;
                    Client.failure(result, e);
                }
            }
        }
        result.put("failed", failed);
        result.put("partitions", seen.result());
    }

    private static KafkaConsumer<byte[], byte[]> consumer(String bootstrap, Args args) {
        Properties props = Client.props(bootstrap);
        props.put("enable.auto.commit", "false");
        props.put("auto.offset.reset", "none");
        props.put("isolation.level", args.str("isolation", "read_uncommitted"));
        if (args.has("group")) {
            props.put("group.id", args.str("group"));
        }
        return new KafkaConsumer<>(props, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    static void consume(String bootstrap, Args args, Map<String, Object> result) throws Exception {
        int count = args.integer("count", 1);
        long from = args.longer("from", -2);
        Records.Seen seen = new Records.Seen();
        long deadline = System.nanoTime() + 30_000_000_000L;
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(bootstrap, args)) {
            List<TopicPartition> parts = new ArrayList<>();
            for (String p : args.list("partitions")) {
                parts.add(new TopicPartition(args.str("topic"), Integer.parseInt(p)));
            }
            consumer.assign(parts);
            if (from == -2) {
                consumer.seekToBeginning(parts);
            } else if (from == -1) {
                consumer.seekToEnd(parts);
            } else {
                parts.forEach(p -> consumer.seek(p, from));
            }
            int got = 0;
            while (got < count && System.nanoTime() < deadline) {
                for (ConsumerRecord<byte[], byte[]> r : consumer.poll(Duration.ofMillis(200))) {
                    if (got++ < count) {
                        seen.add(r.partition(), r.offset(), r.key(), r.value(), r.headers());
                        result.putIfAbsent("first_timestamp", r.timestamp());
                        result.put("last_timestamp", r.timestamp());
                    }
                }
            }
            result.put("got", Math.min(got, count));
        }
        result.put("partitions", seen.result());
    }

    static void commit(String bootstrap, Args args) {
        TopicPartition tp = new TopicPartition(args.str("topic"), args.integer("partition", 0));
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(bootstrap, args)) {
            consumer.commitSync(Collections.singletonMap(
                tp, new OffsetAndMetadata(args.longer("offset", 0), args.str("metadata", ""))));
        }
    }

    static void committed(String bootstrap, Args args, Map<String, Object> result) {
        TopicPartition tp = new TopicPartition(args.str("topic"), args.integer("partition", 0));
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(bootstrap, args)) {
            OffsetAndMetadata got = consumer.committed(Collections.singleton(tp)).get(tp);
            result.put("offset", got == null ? -1 : got.offset());
            result.put("metadata", got == null ? "" : got.metadata());
        }
    }
}
