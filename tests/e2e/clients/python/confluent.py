"""End-to-end client program with confluent-kafka (librdkafka): VERB BOOTSTRAP name=value..."""

import time

from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from common import Records, Refused, Seen, main, say, stop_event


def code_of(error):
    if isinstance(error, KafkaException) and isinstance(error.args[0], KafkaError):
        return error.args[0].code()
    return None


_admins = []


def admin(bootstrap):
    """An admin client that stays: its futures fail once it is collected."""
    _admins.append(AdminClient({"bootstrap.servers": bootstrap}))
    return _admins[-1]


def one(futures):
    """The result of the only future."""
    return next(iter(futures.values())).result(timeout=40)


def produce(bootstrap, args):
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "acks": args.str("acks", "all"),
            "enable.idempotence": args.flag("idempotent"),
            "compression.type": args.str("codec", "none"),
            "message.max.bytes": 20000000,
            "linger.ms": args.int("linger_ms", "5"),
            "batch.size": args.int("batch_size", "16384"),
            "queue.buffering.max.kbytes": 262144,
            "message.timeout.ms": 40000,
        }
    )
    records = Records(args)
    count = args.int("count", "1")
    outcomes = [None] * count
    for i in range(count):

        def delivered(error, message, i=i):
            outcomes[i] = (error, message.partition(), message.offset())

        options = {}
        if args.has("partition"):
            options["partition"] = args.int("partition")
        if args.has("ts_base"):
            options["timestamp"] = args.int("ts_base") + i * args.int("ts_step", "1")
        producer.produce(
            args.str("topic"),
            key=records.key(i),
            value=records.value(i),
            headers=records.headers(i),
            on_delivery=delivered,
            **options,
        )
        producer.poll(0)
    producer.flush(45)
    seen = Seen()
    for i, outcome in enumerate(outcomes):
        if outcome is None:
            raise RuntimeError(f"record {i} has no outcome")
        error, partition, offset = outcome
        if error is not None:
            raise Refused(error.code(), str(error))
        offset = -1 if offset is None or offset < 0 else offset
        seen.add(partition, offset, records.key(i), records.value(i), records.headers(i))
    return {"partitions": seen.result()}


def consumer(bootstrap, args, **more):
    config = {
        "bootstrap.servers": bootstrap,
        "group.id": args.str("group", "unused"),
        "enable.auto.commit": False,
        "auto.offset.reset": "error",
        "fetch.message.max.bytes": 1048576,
        "fetch.wait.max.ms": 100,
    }
    config.update(more)
    return Consumer(config)


def consume(bootstrap, args):
    reader = consumer(bootstrap, args)
    start = {-2: OFFSET_BEGINNING, -1: OFFSET_END}.get(args.int("from", "-2"), args.int("from", "-2"))
    reader.assign([TopicPartition(args.str("topic"), int(p), start) for p in args.list("partitions")])
    count, got, times, seen = args.int("count", "1"), 0, [], Seen()
    deadline = time.monotonic() + 30
    while got < count and time.monotonic() < deadline:
        message = reader.poll(0.2)
        if message is None:
            continue
        if message.error():
            error = message.error()
            # With auto.offset.reset=error the broker's answer arrives as this local code.
            code = 1 if error.code() == KafkaError._AUTO_OFFSET_RESET else error.code()
            raise Refused(code, str(error))
        got += 1
        seen.add(
            message.partition(),
            message.offset(),
            message.key(),
            message.value(),
            message.headers() or [],
        )
        times.append(message.timestamp()[1])
    reader.close()
    answer = {"got": got, "partitions": seen.result()}
    if times:
        answer.update(first_timestamp=times[0], last_timestamp=times[-1])
    return answer


def commit(bootstrap, args):
    writer = consumer(bootstrap, args)
    place = TopicPartition(
        args.str("topic"), args.int("partition"), args.int("offset"), args.str("metadata", "")
    )
    for done in writer.commit(offsets=[place], asynchronous=False):
        if done.error:
            raise Refused(done.error.code(), str(done.error))
    writer.close()


def committed(bootstrap, args):
    reader = consumer(bootstrap, args)
    place = TopicPartition(args.str("topic"), args.int("partition"))
    (found,) = reader.committed([place], timeout=30)
    if found.error:
        raise Refused(found.error.code(), str(found.error))
    reader.close()
    return {"offset": max(found.offset, -1), "metadata": found.metadata or ""}


def member(bootstrap, args):
    stop = stop_event()
    more = {
        "auto.offset.reset": "earliest",
        "session.timeout.ms": args.int("session_ms", "10000"),
        "heartbeat.interval.ms": 500,
        "topic.metadata.refresh.interval.ms": 2000,
    }
    if args.has("instance"):
        more["group.instance.id"] = args.str("instance")
    reader = consumer(bootstrap, args, **more)

    def changed(_reader, partitions):
        say({"event": "assigned", "partitions": sorted(p.partition for p in partitions)})

    def revoked(_reader, _partitions):
        say({"event": "assigned", "partitions": []})

    reader.subscribe([args.str("topic")], on_assign=changed, on_revoke=revoked)
    while not stop.is_set():
        message = reader.poll(0.1)
        if message is None:
            continue
        if message.error():
            if message.error().code() == KafkaError._FATAL:
                # The broker's answer is only in the text of the fatal error.
                fenced = "fenced by other consumer" in str(message.error())
                raise Refused(82 if fenced else -150, str(message.error()))
            say({"event": "error", "code": message.error().code(), "text": str(message.error())})
            continue
        say({"event": "record", "partition": message.partition(), "offset": message.offset()})
        try:
            reader.commit(message=message, asynchronous=False)
        except KafkaException as error:
            say({"event": "commit_refused", "code": code_of(error)})
    reader.close()
    say({"event": "closed"})


def create(bootstrap, args):
    topic = NewTopic(
        args.str("topic"),
        args.int("partitions", "1"),
        args.int("replication", "1"),
        config=args.map("configs"),
    )
    one(admin(bootstrap).create_topics([topic], request_timeout=30))


def partitions(bootstrap, args):
    more = NewPartitions(args.str("topic"), args.int("total"))
    one(admin(bootstrap).create_partitions([more]))


def delete_topics(bootstrap, args):
    one(admin(bootstrap).delete_topics(args.list("topics")))


def topics(bootstrap, _args):
    found = admin(bootstrap).list_topics(timeout=30)
    return {"topics": {name: len(topic.partitions) for name, topic in found.topics.items()}}


def offsets(bootstrap, args):
    at = args.int("at", "-1")
    spec = {-1: OffsetSpec.latest, -2: OffsetSpec.earliest}.get(at, lambda: OffsetSpec.for_timestamp(at))()
    place = TopicPartition(args.str("topic"), args.int("partition"))
    found = one(admin(bootstrap).list_offsets({place: spec}))
    return {"offset": found.offset, "timestamp": found.timestamp}


def configs(bootstrap, args):
    resource = ConfigResource(ResourceType.TOPIC, args.str("topic"))
    found = one(admin(bootstrap).describe_configs([resource]))
    return {"configs": {name: entry.value for name, entry in found.items()}}


def alter(bootstrap, args):
    entries = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        for name, value in args.map("set").items()
    ] + [
        ConfigEntry(name, None, incremental_operation=AlterConfigOpType.DELETE)
        for name in args.list("delete")
    ]
    resource = ConfigResource(ResourceType.TOPIC, args.str("topic"), incremental_configs=entries)
    one(admin(bootstrap).incremental_alter_configs([resource]))


def delete_records(bootstrap, args):
    place = TopicPartition(args.str("topic"), args.int("partition"), args.int("before"))
    if place.offset == -1:
        place.offset = OFFSET_END
    return {"low": one(admin(bootstrap).delete_records([place])).low_watermark}


def groups(bootstrap, _args):
    found = admin(bootstrap).list_consumer_groups().result(timeout=30)
    return {"groups": [group.group_id for group in found.valid]}


def describe_group(bootstrap, args):
    found = one(admin(bootstrap).describe_consumer_groups([args.str("group")]))
    return {
        "state": found.state.name.title().replace("_", ""),
        "members": len(found.members),
        "assignor": found.partition_assignor,
    }


def delete_group(bootstrap, args):
    one(admin(bootstrap).delete_consumer_groups([args.str("group")]))


if __name__ == "__main__":
    main(
        {
            "produce": produce,
            "consume": consume,
            "commit": commit,
            "committed": committed,
            "member": member,
            "create": create,
            "partitions": partitions,
            "delete_topics": delete_topics,
            "topics": topics,
            "offsets": offsets,
            "configs": configs,
            "alter": alter,
            "delete_records": delete_records,
            "groups": groups,
            "describe_group": describe_group,
            "delete_group": delete_group,
        },
        code_of,
    )
