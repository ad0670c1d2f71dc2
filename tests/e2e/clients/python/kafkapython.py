"""End-to-end client program with kafka-python: VERB BOOTSTRAP name=value..."""

import logging
import re
import time

from kafka import KafkaConsumer, KafkaProducer, TopicPartition, errors
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient
from kafka.consumer.subscription_state import ConsumerRebalanceListener
from kafka.errors import CommitFailedError, KafkaError, OffsetOutOfRangeError
from kafka.structs import OffsetAndMetadata

from common import Records, Refused, Seen, main, say, stop_event

logging.basicConfig(level=logging.CRITICAL)


def code_of(error):
    if isinstance(error, OffsetOutOfRangeError):
        return 1
    if isinstance(error, KafkaError):
        return getattr(error, "errno", None) or -1
    return None


def raise_code(found):
    """kafka-python gives some refusals as the name of the error class."""
    if found != "OK":
        name = re.search(r"\w+Error", str(found)).group()
        raise Refused(getattr(errors, name).errno, repr(found))


def admin(bootstrap):
    return KafkaAdminClient(bootstrap_servers=bootstrap, request_timeout_ms=30000)


def produce(bootstrap, args):
    acks = args.str("acks", "all")
    codec = args.str("codec", "none")
    producer = KafkaProducer(
        bootstrap_servers=bootstrap,
        acks=acks if acks == "all" else int(acks),
        enable_idempotence=args.flag("idempotent"),
        compression_type=None if codec == "none" else codec,
        max_request_size=20000000,
        linger_ms=args.int("linger_ms", "5"),
        batch_size=args.int("batch_size", "16384"),
        delivery_timeout_ms=40000,
    )
    records, seen = Records(args), Seen()
    sent = []
    for i in range(args.int("count", "1")):
        time_ms = None
        if args.has("ts_base"):
            time_ms = args.int("ts_base") + i * args.int("ts_step", "1")
        sent.append(
            producer.send(
                args.str("topic"),
                key=records.key(i),
                value=records.value(i),
                headers=records.headers(i),
                partition=args.int("partition") if args.has("partition") else None,
                timestamp_ms=time_ms,
            )
        )
    producer.flush(45)
    for i, future in enumerate(sent):
        done = future.get(timeout=45)
        seen.add(done.partition, done.offset, records.key(i), records.value(i), records.headers(i))
    producer.close()
    return {"partitions": seen.result()}


def consumer(bootstrap, args, **more):
    config = {
        "group_id": args.str("group") if args.has("group") else None,
        "enable_auto_commit": False,
        "auto_offset_reset": "none",
        "fetch_max_wait_ms": 100,
    }
    config.update(more)
    return KafkaConsumer(bootstrap_servers=bootstrap, **config)


def consume(bootstrap, args):
    reader = consumer(bootstrap, args)
    places = [TopicPartition(args.str("topic"), int(p)) for p in args.list("partitions")]
    reader.assign(places)
    start = args.int("from", "-2")
    if start == -2:
        reader.seek_to_beginning(*places)
    elif start == -1:
        reader.seek_to_end(*places)
    else:
        for place in places:
            reader.seek(place, start)
    count, got, times, seen = args.int("count", "1"), 0, [], Seen()
    deadline = time.monotonic() + 30
    while got < count and time.monotonic() < deadline:
        for batch in reader.poll(timeout_ms=200).values():
            for record in batch:
                got += 1
                if got <= count:
                    seen.add(record.partition, record.offset, record.key, record.value, record.headers)
                    times.append(record.timestamp)
    reader.close()
    answer = {"got": min(got, count), "partitions": seen.result()}
    if times:
        answer.update(first_timestamp=times[0], last_timestamp=times[-1])
    return answer


def commit(bootstrap, args):
    writer = consumer(bootstrap, args)
    place = TopicPartition(args.str("topic"), args.int("partition"))
    writer.assign([place])
    writer.commit({place: OffsetAndMetadata(args.int("offset"), args.str("metadata", ""), -1)})
    writer.close()


def committed(bootstrap, args):
    reader = consumer(bootstrap, args)
    found = reader.committed(TopicPartition(args.str("topic"), args.int("partition")), metadata=True)
    reader.close()
    if found is None:
        return {"offset": -1, "metadata": ""}
    return {"offset": found.offset, "metadata": found.metadata}


class Listener(ConsumerRebalanceListener):
    """Says each assignment."""

    def __init__(self, reader):
        self.reader = reader

    def on_partitions_revoked(self, revoked):
        gone = {place.partition for place in revoked}
        left = {place.partition for place in self.reader.assignment()} - gone
        say({"event": "assigned", "partitions": sorted(left)})

    def on_partitions_assigned(self, assigned):
        have = {place.partition for place in self.reader.assignment()}
        have |= {place.partition for place in assigned}
        say({"event": "assigned", "partitions": sorted(have)})


def member(bootstrap, args):
    stop = stop_event()
    reader = consumer(
        bootstrap,
        args,
        auto_offset_reset="earliest",
        session_timeout_ms=args.int("session_ms", "10000"),
        heartbeat_interval_ms=500,
        metadata_max_age_ms=2000,
        group_instance_id=args.str("instance") if args.has("instance") else None,
    )
    reader.subscribe([args.str("topic")], listener=Listener(reader))
    # kafka-python 3.0.12 loses a rebalance that it starts as the leader because it learned of the
    # partitions after it had assigned them: when poll() returns while that JoinGroup is under way,
    # no later poll() takes up the answer, and the member is mute until its session ends. So the
    # partitions are known before the first JoinGroup.
    deadline = time.monotonic() + 30
    while not reader.partitions_for_topic(args.str("topic")):
        if time.monotonic() >= deadline:
            raise TimeoutError("no metadata of the topic")
        time.sleep(0.05)
    while not stop.is_set():
        found = reader.poll(timeout_ms=100)
        for batch in found.values():
            for record in batch:
                say({"event": "record", "partition": record.partition, "offset": record.offset})
        if found:
            try:
                reader.commit()
            except CommitFailedError as error:
                say({"event": "commit_refused", "code": code_of(error)})
    reader.close()
    say({"event": "closed"})


def create(bootstrap, args):
    wanted = {
        "num_partitions": args.int("partitions", "1"),
        "replication_factor": args.int("replication", "1"),
        "configs": args.map("configs"),
    }
    admin(bootstrap).create_topics({args.str("topic"): wanted})


def partitions(bootstrap, args):
    admin(bootstrap).create_partitions({args.str("topic"): args.int("total")})


def delete_topics(bootstrap, args):
    admin(bootstrap).delete_topics(args.list("topics"))


def topics(bootstrap, _args):
    found = admin(bootstrap).describe_topics()
    return {"topics": {topic["name"]: len(topic["partitions"]) for topic in found}}


def offsets(bootstrap, args):
    place = TopicPartition(args.str("topic"), args.int("partition"))
    found = admin(bootstrap).list_partition_offsets({place: args.int("at", "-1")})[place]
    return {"offset": found.offset, "timestamp": found.timestamp}


def configs(bootstrap, args):
    resource = ConfigResource(ConfigResourceType.TOPIC, args.str("topic"))
    found = admin(bootstrap).describe_configs([resource], config_filter="all")
    (by_name,) = found.values()
    entries = by_name[args.str("topic")]
    return {"configs": {name: entry["value"] for name, entry in entries.items()}}


def alter(bootstrap, args):
    changes = {name: ("SET", value) for name, value in args.map("set").items()}
    changes.update({name: ("DELETE", None) for name in args.list("delete")})
    resource = ConfigResource(ConfigResourceType.TOPIC, args.str("topic"), configs=changes)
    found = admin(bootstrap).alter_configs([resource], raise_on_unknown=False)
    (by_name,) = found.values()
    raise_code(by_name[args.str("topic")])


def delete_records(bootstrap, args):
    place = TopicPartition(args.str("topic"), args.int("partition"))
    found = admin(bootstrap).delete_records({place: args.int("before")})
    return {"low": found[place]["low_watermark"]}


def groups(bootstrap, _args):
    return {"groups": [group["group_id"] for group in admin(bootstrap).list_groups()]}


def describe_group(bootstrap, args):
    found = admin(bootstrap).describe_groups([args.str("group")])[args.str("group")]
    return {"state": found["group_state"], "members": len(found["members"])}


def delete_group(bootstrap, args):
    found = admin(bootstrap).delete_groups([args.str("group")])
    raise_code(found[args.str("group")])


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
