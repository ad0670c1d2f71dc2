import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeMap;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ConsumerGroupDescription;
import org.apache.kafka.clients.admin.ConsumerGroupListing;
import org.apache.kafka.clients.admin.ListOffsetsResult;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;

/** Everything that goes through the admin client. */
final class Admins {
    private Admins() {}

    static void run(String verb, String bootstrap, Args args, Map<String, Object> result) throws Exception {
        try (Admin admin = Admin.create(Client.props(bootstrap))) {
            switch (verb) {
                case "create": create(admin, args); break;
                case "partitions":
                    admin.createPartitions(Collections.singletonMap(
                        args.str("topic"), NewPartitions.increaseTo(args.integer("total", 1)))).all().get();
                    break;
                case "delete_topics": admin.deleteTopics(args.list("topics")).all().get(); break;
                case "topics": topics(admin, result); break;
                case "offsets": offsets(admin, args, result); break;
                case "configs": configs(admin, args, result); break;
                case "alter": alter(admin, args); break;
                case "delete_records": deleteRecords(admin, args, result); break;
                case "groups": groups(admin, result); break;
                case "describe_group": describeGroup(admin, args, result); break;
                case "delete_group":
                    admin.deleteConsumerGroups(args.list("group")).all().get();
                    break;
                case "cluster":
                    result.put("cluster_id", admin.describeCluster().clusterId().get());
                    result.put("brokers", admin.describeCluster().nodes().get().size());
                    result.put("controller", admin.describeCluster().controller().get().id());
                    break;
                default: throw new IllegalArgumentException("unknown verb " + verb);
            }
        }
    }

    private static void create(Admin admin, Args args) throws Exception {
        NewTopic topic = new NewTopic(
            args.str("topic"), Optional.of(args.integer("partitions", 1)), Optional.of((short) args.integer("replication", 1)));
        topic.configs(args.map("configs"));
        admin.createTopics(Collections.singletonList(topic)).all().get();
    }

    private static void topics(Admin admin, Map<String, Object> result) throws Exception {
        Map<String, Object> out = new TreeMap<>();
        Collection<String> names = admin.listTopics().names().get();
        for (TopicDescription d : admin.describeTopics(names).allTopicNames().get().values()) {
            out.put(d.name(), d.partitions().size());
        }
        result.put("topics", out);
    }

    private static void offsets(Admin admin, Args args, Map<String, Object> result) throws Exception {
        TopicPartition tp = new TopicPartition(args.str("topic"), args.integer("partition", 0));
        long at = args.longer("at", -1);
        OffsetSpec spec = at == -1 ? OffsetSpec.latest()
            : at == -2 ? OffsetSpec.earliest()
            : at == -3 ? OffsetSpec.maxTimestamp() : OffsetSpec.forTimestamp(at);
        ListOffsetsResult.ListOffsetsResultInfo info =
            admin.listOffsets(Collections.singletonMap(tp, spec)).partitionResult(tp).get();
        result.put("offset", info.offset());
        result.put("timestamp", info.timestamp());
    }

    private static void configs(Admin admin, Args args, Map<String, Object> result) throws Exception {
        ConfigResource resource = resource(args);
        Map<String, Object> values = new TreeMap<>();
        Map<String, Object> sources = new TreeMap<>();
        for (ConfigEntry e : admin.describeConfigs(Collections.singleton(resource)).all().get().get(resource).entries()) {
            values.put(e.name(), e.value());
            sources.put(e.name(), e.source().name());
        }
        result.put("configs", values);
        result.put("sources", sources);
    }

    private static ConfigResource resource(Args args) {
        return args.has("broker")
            ? new ConfigResource(ConfigResource.Type.BROKER, args.str("broker"))
            : new ConfigResource(ConfigResource.Type.TOPIC, args.str("topic"));
    }

    private static void alter(Admin admin, Args args) throws Exception {
        List<AlterConfigOp> ops = new ArrayList<>();
        args.map("set").forEach((k, v) -> ops.add(new AlterConfigOp(new ConfigEntry(k, v), AlterConfigOp.OpType.SET)));
        args.list("delete").forEach(k -> ops.add(new AlterConfigOp(new ConfigEntry(k, ""), AlterConfigOp.OpType.DELETE)));
        args.map("append").forEach((k, v) -> ops.add(new AlterConfigOp(new ConfigEntry(k, v), AlterConfigOp.OpType.APPEND)));
        args.map("subtract").forEach((k, v) -> ops.add(new AlterConfigOp(new ConfigEntry(k, v), AlterConfigOp.OpType.SUBTRACT)));
        admin.incrementalAlterConfigs(Collections.singletonMap(resource(args), ops)).all().get();
    }

    private static void deleteRecords(Admin admin, Args args, Map<String, Object> result) throws Exception {
        TopicPartition tp = new TopicPartition(args.str("topic"), args.integer("partition", 0));
        RecordsToDelete before = RecordsToDelete.beforeOffset(args.longer("before", 0));
        result.put("low", admin.deleteRecords(Collections.singletonMap(tp, before))
            .lowWatermarks().get(tp).get().lowWatermark());
    }

    private static void groups(Admin admin, Map<String, Object> result) throws Exception {
        List<Object> names = new ArrayList<>();
        for (ConsumerGroupListing g : admin.listConsumerGroups().all().get()) {
            names.add(g.groupId());
        }
        result.put("groups", names);
    }

    private static void describeGroup(Admin admin, Args args, Map<String, Object> result) throws Exception {
        String group = args.str("group");
        ConsumerGroupDescription d = admin.describeConsumerGroups(Collections.singleton(group)).all().get().get(group);
        result.put("state", d.state().toString());
        result.put("members", d.members().size());
        result.put("assignor", d.partitionAssignor());
    }
}
