import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeSet;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RebalanceInProgressException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * One member of a consumer group, until standard input is closed. Says each assignment and each
 * record as an event; commits what it read after every poll.
 */
final class Member {
    private Member() {}

    static void run(String bootstrap, Args args) throws Exception {
        AtomicBoolean stop = new AtomicBoolean();
        Thread watcher = new Thread(() -> {
            try {
                while (System.in.read() >= 0) {
                    continue;
                }
            } catch (java.io.IOException e) {
                // a broken pipe means the same as its end
            }
            stop.set(true);
        });
        watcher.setDaemon(true);
        watcher.start();

        Properties props = Client.props(bootstrap);
        props.put("group.id", args.str("group"));
        props.put("group.protocol", "classic");
        props.put("enable.auto.commit", "false");
        props.put("auto.offset.reset", "earliest");
        props.put("session.timeout.ms", args.str("session_ms", "10000"));
        props.put("heartbeat.interval.ms", "500");
        props.put("metadata.max.age.ms", "2000");
        if (args.has("strategy")) {
            props.put("partition.assignment.strategy",
                "org.apache.kafka.clients.consumer." + args.str("strategy"));
        }
        if (args.has("instance")) {
            props.put("group.instance.id", args.str("instance"));
        }
        try (KafkaConsumer<byte[], byte[]> consumer =
                 new KafkaConsumer<>(props, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            consumer.subscribe(Collections.singletonList(args.str("topic")), new Listener(consumer));
            while (!stop.get()) {
                ConsumerRecords<byte[], byte[]> records = consumer.poll(Duration.ofMillis(100));
                for (ConsumerRecord<byte[], byte[]> r : records) {
                    Map<String, Object> event = event("record");
                    event.put("partition", r.partition());
                    event.put("offset", r.offset());
                    Json.print(event);
                }
                if (!records.isEmpty()) {
                    try {
                        consumer.commitSync();
                    } catch (RebalanceInProgressException | org.apache.kafka.clients.consumer.CommitFailedException e) {
                        // whoever gets the partition next reads these records again
                        Json.print(event("commit_refused"));
                    }
                }
            }
        }
        Json.print(event("closed"));
    }

    static Map<String, Object> event(String name) {
        Map<String, Object> event = new LinkedHashMap<>();
        event.put("event", name);
        return event;
    }

    private static final class Listener implements ConsumerRebalanceListener {
        private final KafkaConsumer<byte[], byte[]> consumer;

        Listener(KafkaConsumer<byte[], byte[]> consumer) {
            this.consumer = consumer;
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> gone) {
            TreeSet<Integer> left = new TreeSet<>();
            consumer.assignment().forEach(tp -> left.add(tp.partition()));
            gone.forEach(tp -> left.remove(tp.partition()));
            say(left);
        }

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> added) {
            TreeSet<Integer> all = new TreeSet<>();
            consumer.assignment().forEach(tp -> all.add(tp.partition()));
            say(all);
        }

        private static void say(TreeSet<Integer> partitions) {
            Map<String, Object> event = event("assigned");
            List<Object> list = new ArrayList<>(partitions);
            event.put("partitions", list);
            Json.print(event);
        }
    }
}
