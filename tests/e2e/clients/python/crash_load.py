"""Load for the kill -9 test: BOOTSTRAP TOPIC PARTITIONS SEED HISTORY

Producers write records whose bytes follow from their names; readers read from several positions;
others watch the watermarks, delete old records and commit group offsets. Everything that is asked
and answered goes to the history file, one JSON object a line, in the order in which this process
learned it. Orders come on standard input: `kill N` (about to kill), `up N` (runs again), `stop`.
Each is answered on standard output by the same line once it stands in the history; after `up N`
comes `progress N` when every producer has had an acknowledgement and every reader has read
up to what was acknowledged when it began.
"""

import json
import os
import random
import sys
import threading
import time
import zlib

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

BOOTSTRAP, TOPIC = sys.argv[1], sys.argv[2]
PARTITIONS, SEED = int(sys.argv[3]), int(sys.argv[4])
# Name, idempotence, codec.
PRODUCERS = [("i0", True, "none"), ("i1", True, "lz4"), ("p0", False, "none"), ("p1", False, "zstd")]
READERS = ["r0", "r1", "r2", "r3"]
# The last partition is the one whose old records are deleted.
TRIMMED = PARTITIONS - 1
# Records of one producer that may wait for their outcome.
OUTSTANDING = 300
RECONNECT = {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 200, "retry.backoff.ms": 50}


class History:
    """The history file. A line is written whole, under a lock, before anything else happens."""

    def __init__(self, path):
        self.file = open(path, "w", encoding="ascii")
        self.lock = threading.Lock()
        self.lines = 0

    def add(self, **event):
        line = json.dumps(event, separators=(",", ":")) + "\n"
        with self.lock:
            self.file.write(line)
            self.lines += 1
            return self.lines

    def close(self):
        with self.lock:
            self.file.close()


def payload(writer, number):
    """The bytes of a record: a name, then a pattern whose length depends on the number."""
    size = 20000 if number % 97 == 0 else number * 37 % 400
    block = bytes((number * 131 + j * 7) & 255 for j in range(256))
    return b"%s:%d:" % (writer.encode(), number) + (block * (size // 256 + 1))[:size]


class Progress:
    """Who has got on since the broker came back."""

    def __init__(self):
        self.lock = threading.Condition()
        self.seen = set()

    def reset(self):
        with self.lock:
            self.seen.clear()

    def note(self, name):
        with self.lock:
            if name not in self.seen:
                self.seen.add(name)
                self.lock.notify_all()

    def wait_for(self, names):
        with self.lock:
            self.lock.wait_for(lambda: self.seen.issuperset(names))


class Load:
    def __init__(self, history):
        self.history = history
        self.progress = Progress()
        self.stop = threading.Event()
        self.failed = None
        # The newest acknowledged offset of each partition.
        self.ends = [-1] * PARTITIONS

    def guard(self, work, *args):
        """A thread that must not die unnoticed."""

        def run():
            try:
                work(*args)
            except BaseException as error:  # reported by the main thread, which fails the run
                self.failed = repr(error)
                print("failed " + self.failed, flush=True)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        return thread

    def produce(self, name, idempotent, codec):
        producer = Producer(
            {
                "bootstrap.servers": BOOTSTRAP,
                "client.id": name,
                "acks": "all",
                "enable.idempotence": idempotent,
                "compression.type": codec,
                "linger.ms": 2,
                "batch.num.messages": 20,
                "message.timeout.ms": 300000,
                "socket.timeout.ms": 10000,
                # What an idempotent producer decides by itself must be known to judge a broker.
                **({"debug": "eos"} if idempotent else {}),
                **RECONNECT,
            }
        )
        self.history.add(e="producer", w=name, idempotent=idempotent)
        room = threading.Semaphore(OUTSTANDING)
        number = 0

        def outcome(error, message, number):
            if error is None:
                partition, offset = message.partition(), message.offset()
                self.history.add(e="ack", w=name, n=number, p=partition, o=offset)
                self.ends[partition] = max(self.ends[partition], offset)
                self.progress.note(name)
            else:
                self.history.add(e="nack", w=name, n=number, code=error.code())
            room.release()

        chance = random.Random(f"{SEED}/{name}")
        while not self.stop.is_set():
            # A trickle that readers can follow, and now and then a burst that fills the window of
            # batches in flight.
            for _ in range(200 if chance.random() < 0.01 else 2):
                while not room.acquire(blocking=False):
                    producer.poll(0.05)
                partition = number % PARTITIONS
                self.history.add(e="send", w=name, n=number, p=partition)
                producer.produce(
                    TOPIC,
                    value=payload(name, number),
                    partition=partition,
                    on_delivery=lambda error, message, n=number: outcome(error, message, n),
                )
                number += 1
            producer.poll(0.01)
            self.stop.wait(0.015)
        if producer.flush(120):
            raise RuntimeError(f"{name}: records without an outcome at the end")

    def reader(self, **more):
        return Consumer(
            {
                "bootstrap.servers": BOOTSTRAP,
                "group.id": "crash-readers",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "error",
                "fetch.wait.max.ms": 50,
                "fetch.error.backoff.ms": 50,
                **RECONNECT,
                **more,
            }
        )

    def read(self, name):
        """Reads again and again: from the start, from anywhere, and near the end."""
        chance = random.Random(f"{SEED}/{name}")
        consumer = self.reader()
        number = 0
        while not self.stop.is_set():
            partition = chance.randrange(PARTITIONS)
            end = self.ends[partition]
            near = chance.random() < 0.6
            if near:
                start = max(0, end - chance.randrange(100))
            elif partition == TRIMMED or chance.random() < 0.3:
                start = OFFSET_BEGINNING
            else:
                start = chance.randrange(max(1, end))
            self.one_pass(consumer, name, number, partition, start, 2000 if near else 150, 20, end if near else None)
            number += 1
            self.stop.wait(0.05)
        consumer.close()

    def one_pass(self, consumer, name, number, partition, start, limit, seconds, target=None):
        """Reads up to `limit` records, to offset `target`, or to the end of the partition; says
        whether it was the end. (Under load there is always more, and the end never comes.)"""
        self.history.add(e="read_start", r=name, i=number, p=partition, o=start)
        consumer.assign([TopicPartition(TOPIC, partition, start)])
        deadline = time.monotonic() + seconds
        got, end = 0, None
        while got < limit and end is None and time.monotonic() < deadline:
            message = consumer.poll(0.1)
            if message is None:
                continue
            error = message.error()
            if error is None:
                value = message.value()
                writer, count, _ = value.split(b":", 2)
                self.history.add(
                    e="rec", r=name, i=number, p=partition, o=message.offset(),
                    w=writer.decode(), n=int(count), sum=zlib.crc32(value),
                )
                got += 1
                if target is not None and message.offset() >= target:
                    self.progress.note(name)
                    break
            elif error.code() == KafkaError._PARTITION_EOF:
                end = message.offset()
                self.progress.note(name)
            elif error.code() == KafkaError._AUTO_OFFSET_RESET:
                # Deleted meanwhile, or beyond the end: the checker judges which. The error may be a
                # late one of the pass before, so it is noted with the position that it names.
                at = message.offset()
                self.history.add(e="out_of_range", r=name, i=number, p=message.partition(), o=at)
                if message.partition() == partition and at >= start:
                    break
        consumer.unassign()
        self.history.add(e="read_end", r=name, i=number, p=partition, o=-1 if end is None else end)
        return end is not None

    def watch(self, name):
        """Asks for log start and high watermark."""
        consumer = self.reader()
        number = 0
        while not self.stop.is_set():
            self.marks(consumer, name, number % PARTITIONS)
            number += 1
            self.stop.wait(0.02)
        consumer.close()

    def marks(self, consumer, name, partition):
        since = self.history.lines
        try:
            low, high = consumer.get_watermark_offsets(TopicPartition(TOPIC, partition), timeout=2)
        except KafkaException:
            return  # the broker is down; asked again
        self.history.add(e="marks", c=name, p=partition, low=low, high=high, since=since)

    def trim(self, name):
        """Deletes old records of one partition, and looks where the log starts then."""
        admin = AdminClient({"bootstrap.servers": BOOTSTRAP, **RECONNECT})
        consumer = self.reader()
        while not self.stop.wait(0.7):
            before = self.ends[TRIMMED] - 1000
            if before <= 0:
                continue
            self.history.add(e="trim", p=TRIMMED, o=before)
            place = TopicPartition(TOPIC, TRIMMED, before)
            try:
                done = next(iter(admin.delete_records([place], request_timeout=3).values())).result(5)
                self.history.add(e="trimmed", c=name, p=TRIMMED, o=done.low_watermark)
            except (KafkaException, TimeoutError):
                pass  # unknown outcome
            self.marks(consumer, name, TRIMMED)
        consumer.close()

    def commit(self, group):
        """Commits offsets of a group and reads them back."""
        consumer = self.reader(**{"group.id": group})
        offset = 0
        while not self.stop.wait(0.05):
            offset += 1
            self.history.add(e="commit", g=group, o=offset)
            try:
                (done,) = consumer.commit(offsets=[TopicPartition(TOPIC, 0, offset)], asynchronous=False)
                if done.error is None:
                    self.history.add(e="commit_ack", g=group, o=offset)
                (found,) = consumer.committed([TopicPartition(TOPIC, 0)], timeout=2)
                if found.error is None:
                    self.history.add(e="committed", g=group, o=found.offset)
            except KafkaException:
                continue  # unknown outcome
        consumer.close()

    def final(self):
        """Reads everything once, after all producers have ended."""
        consumer = self.reader()
        for partition in range(PARTITIONS):
            self.marks(consumer, "final", partition)
            if not self.one_pass(consumer, "final", partition, partition, OFFSET_BEGINNING, 10**9, 120):
                raise RuntimeError(f"partition {partition} was not read to its end")
        consumer.close()


def main():
    os.dup2(os.open(sys.argv[5] + ".log", os.O_CREAT | os.O_WRONLY), 2)
    history = History(sys.argv[5])
    load = Load(history)
    producers = [load.guard(load.produce, *which) for which in PRODUCERS]
    others = [load.guard(load.read, name) for name in READERS]
    others += [load.guard(load.watch, "watch"), load.guard(load.trim, "trim"), load.guard(load.commit, "crash-group")]
    everyone = {name for name, _, _ in PRODUCERS} | set(READERS)

    def report(order):
        load.progress.wait_for(everyone)
        print(order.replace("up", "progress"), flush=True)

    load.guard(report, "up 0")
    for line in sys.stdin:
        order = line.strip()
        if order == "stop":
            break
        event, number = order.split()
        history.add(e=event, round=int(number))
        print(order, flush=True)
        if event == "up":
            load.progress.reset()
            load.guard(report, order)
    load.stop.set()
    for thread in producers + others:
        thread.join(180)
        if thread.is_alive():
            sys.exit("a thread did not end")
    if load.failed:
        sys.exit(load.failed)
    load.final()
    history.close()
    print("stop", flush=True)


main()
