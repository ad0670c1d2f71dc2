// End-to-end client program with kafkajs: VERB BOOTSTRAP name=value...
//
// Prints JSON lines; the last is {"ok":true,...} or {"ok":false,"code":N,"error":"..."} with
// Kafka's error number.
"use strict";

const crypto = require("crypto");
const { Kafka, CompressionTypes, CompressionCodecs, ConfigResourceTypes, logLevel } = require("kafkajs");
CompressionCodecs[CompressionTypes.Snappy] = require("kafkajs-snappy");

const codecs = { none: CompressionTypes.None, gzip: CompressionTypes.GZIP, snappy: CompressionTypes.Snappy };

function parseArgs(argv) {
  const values = Object.fromEntries(argv.map((arg) => [arg.slice(0, arg.indexOf("=")), arg.slice(arg.indexOf("=") + 1)]));
  return {
    has: (name) => name in values,
    str: (name, fallback) => values[name] ?? fallback,
    num: (name, fallback) => Number(values[name] ?? fallback),
    list: (name) => (values[name] ?? "").split(",").filter((part) => part !== ""),
    pairs: (name) =>
      (values[name] ?? "").split(",").filter((part) => part !== "").map((part) => ({
        name: part.slice(0, part.indexOf("=")),
        value: part.slice(part.indexOf("=") + 1),
      })),
  };
}

// Record number i, the same in every language.
function records(args) {
  const shape = args.str("shape", "mixed");
  const sizes = args.list("sizes").map(Number);
  if (sizes.length === 0) sizes.push(100);
  const withNull = args.str("null_headers", "true") === "true";
  return {
    key(i) {
      if (shape === "mixed" && i % 4 === 0 && i % 5 !== 4) return null;
      return Buffer.from(shape === "plain" ? `k${i}` : `key-${i % 16}`);
    },
    value(i) {
      if (shape === "mixed" && i % 5 === 4) return null;
      const block = Buffer.from(Array.from({ length: 256 }, (_, j) => (args.num("seed", 0) + 31 * i + 7 * j) & 255));
      return Buffer.alloc(sizes[i % sizes.length], block);
    },
    headers(i) {
      const out = {};
      if (shape === "mixed") {
        for (let k = 0; k < i % 3; k++) out[`h${k}`] = k === 1 && withNull ? null : Buffer.from(`v${i}`);
      }
      return out;
    },
  };
}

// First and last offset, count and digest for each partition.
class Seen {
  constructor() {
    this.digests = {};
    this.partitions = {};
  }

  add(partition, offset, key, value, headers) {
    const digest = (this.digests[partition] ??= crypto.createHash("sha256"));
    part(digest, key);
    part(digest, value);
    const all = Object.entries(headers ?? {});
    digest.update(int32(all.length));
    for (const [name, content] of all) {
      part(digest, Buffer.from(name));
      part(digest, content);
    }
    const entry = (this.partitions[partition] ??= { first: offset, count: 0 });
    entry.last = offset;
    entry.count += 1;
  }

  result() {
    for (const [partition, digest] of Object.entries(this.digests)) {
      this.partitions[partition].digest = digest.digest("hex");
    }
    return this.partitions;
  }
}

function int32(number) {
  const out = Buffer.alloc(4);
  out.writeInt32BE(number);
  return out;
}

function part(digest, bytes) {
  digest.update(int32(bytes == null ? -1 : bytes.length));
  if (bytes != null) digest.update(bytes);
}

function say(event) {
  process.stdout.write(JSON.stringify(event) + "\n");
}

function kafka(bootstrap) {
  return new Kafka({
    clientId: "talos-e2e",
    brokers: [bootstrap],
    logLevel: logLevel.NOTHING,
    retry: { retries: 10, initialRetryTime: 50, maxRetryTime: 1000 },
  });
}

async function withAdmin(bootstrap, use) {
  const admin = kafka(bootstrap).admin();
  await admin.connect();
  try {
    return await use(admin);
  } finally {
    await admin.disconnect();
  }
}

async function produce(bootstrap, args) {
  const idempotent = args.str("idempotent") === "true";
  const producer = kafka(bootstrap).producer({ idempotent, maxInFlightRequests: idempotent ? 1 : null });
  await producer.connect();
  const made = records(args);
  const acks = { 0: 0, 1: 1, all: -1 }[args.str("acks", "all")];
  const seen = new Seen();
  const count = args.num("count", 1);
  // kafkajs makes one batch of what one call is given; large records go one by one.
  const large = args.list("sizes").some((size) => Number(size) > 100000);
  const step = large ? 1 : 100;
  try {
    for (let from = 0; from < count; from += step) {
      await send(from, Math.min(count, from + step));
    }
  } finally {
    await producer.disconnect();
  }
  return { partitions: seen.result() };

  async function send(from, to) {
    const messages = [];
    for (let i = from; i < to; i++) {
      const message = { key: made.key(i), value: made.value(i), headers: made.headers(i) };
      if (args.has("partition")) message.partition = args.num("partition");
      if (args.has("ts_base")) message.timestamp = String(args.num("ts_base") + i * args.num("ts_step", 1));
      messages.push(message);
    }
    const compression = codecs[args.str("codec", "none")];
    if (args.has("partition")) {
      const done = await producer.send({ topic: args.str("topic"), acks, compression, messages });
      const base = acks === 0 ? -1 : Number(done[0].baseOffset);
      messages.forEach((m, at) => seen.add(m.partition, base < 0 ? -1 : base + at, m.key, m.value, m.headers));
      return;
    }
    // Where the partitioner put a record is only known when it is sent alone.
    for (const message of messages) {
      const [done] = await producer.send({ topic: args.str("topic"), acks, compression, messages: [message] });
      seen.add(done.partition, Number(done.baseOffset), message.key, message.value, message.headers);
    }
  }
}

// kafkajs reads in groups only; this group has one member, which seeks to where it shall read.
async function consume(bootstrap, args) {
  const topic = args.str("topic");
  const partition = Number(args.list("partitions")[0]);
  let from = args.num("from", -2);
  const client = kafka(bootstrap);
  const bounds = await withAdmin(bootstrap, (admin) => admin.fetchTopicOffsets(topic));
  const bound = bounds.find((b) => b.partition === partition);
  if (from === -2) from = Number(bound.low);
  if (from === -1) from = Number(bound.high);
  const consumer = client.consumer({
    groupId: `reader-${crypto.randomUUID()}`,
    maxWaitTimeInMs: 100,
    maxBytesPerPartition: 1048576,
    sessionTimeout: 10000,
    rebalanceTimeout: 10000,
  });
  const count = args.num("count", 1);
  const seen = new Seen();
  const answer = { got: 0 };
  let failed;
  await consumer.connect();
  await new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, 30000);
    const end = (finish, value) => {
      clearTimeout(timer);
      finish(value);
    };
    consumer.on(consumer.events.CRASH, (event) => end(reject, event.payload.error));
    // kafkajs answers OFFSET_OUT_OF_RANGE by going to the default offset; below, that shows.
    consumer
      .subscribe({ topics: [topic], fromBeginning: true })
      .then(() =>
        consumer.run({
          autoCommit: false,
          eachMessage: async ({ partition: at, message }) => {
            if (at !== partition || answer.got >= count || failed) return;
            if (Number(message.offset) < from) return;
            if (answer.got === 0) answer.first_timestamp = Number(message.timestamp);
            answer.got += 1;
            answer.last_timestamp = Number(message.timestamp);
            seen.add(at, Number(message.offset), message.key, message.value, message.headers);
            if (answer.got >= count) end(resolve);
          },
        }),
      )
      .then(() => consumer.seek({ topic, partition, offset: String(from) }))
      .catch((error) => end(reject, error));
  }).finally(() => consumer.disconnect());
  answer.partitions = seen.result();
  return answer;
}

async function commit(bootstrap, args) {
  await withAdmin(bootstrap, (admin) =>
    admin.setOffsets({
      groupId: args.str("group"),
      topic: args.str("topic"),
      partitions: [{ partition: args.num("partition"), offset: args.str("offset"), metadata: args.str("metadata", "") }],
    }),
  );
}

async function committed(bootstrap, args) {
  const found = await withAdmin(bootstrap, (admin) =>
    admin.fetchOffsets({ groupId: args.str("group"), topics: [args.str("topic")] }),
  );
  const place = found[0].partitions.find((p) => p.partition === args.num("partition"));
  return { offset: Number(place?.offset ?? -1), metadata: place?.metadata ?? "" };
}

async function member(bootstrap, args) {
  const topic = args.str("topic");
  const consumer = kafka(bootstrap).consumer({
    groupId: args.str("group"),
    sessionTimeout: args.num("session_ms", 10000),
    rebalanceTimeout: 10000,
    heartbeatInterval: 500,
    metadataMaxAge: 2000,
    maxWaitTimeInMs: 100,
  });
  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
    say({ event: "assigned", partitions: (payload.memberAssignment[topic] ?? []).sort((a, b) => a - b) });
  });
  consumer.on(consumer.events.REBALANCING, () => say({ event: "assigned", partitions: [] }));
  consumer.on(consumer.events.CRASH, ({ payload }) => say({ event: "error", text: String(payload.error) }));
  await consumer.connect();
  await consumer.subscribe({ topics: [topic], fromBeginning: true });
  await consumer.run({
    autoCommitThreshold: 1,
    eachMessage: async ({ partition, message }) => {
      say({ event: "record", partition, offset: Number(message.offset) });
    },
  });
  await new Promise((resolve) => process.stdin.on("end", resolve).resume());
  await consumer.disconnect();
  say({ event: "closed" });
}

async function topics(bootstrap) {
  const found = await withAdmin(bootstrap, (admin) => admin.fetchTopicMetadata());
  return { topics: Object.fromEntries(found.topics.map((t) => [t.name, t.partitions.length])) };
}

async function offsets(bootstrap, args) {
  const at = args.num("at", -1);
  const found = await withAdmin(bootstrap, (admin) =>
    at < 0
      ? admin.fetchTopicOffsets(args.str("topic"))
      : admin.fetchTopicOffsetsByTimestamp(args.str("topic"), at),
  );
  const place = found.find((p) => p.partition === args.num("partition"));
  return { offset: Number(at === -2 ? place.low : place.offset) };
}

async function configs(bootstrap, args) {
  const found = await withAdmin(bootstrap, (admin) =>
    admin.describeConfigs({
      includeSynonyms: false,
      resources: [{ type: ConfigResourceTypes.TOPIC, name: args.str("topic") }],
    }),
  );
  return { configs: Object.fromEntries(found.resources[0].configEntries.map((e) => [e.configName, e.configValue])) };
}

const adminVerbs = {
  create: (admin, args) =>
    admin.createTopics({
      waitForLeaders: false,
      topics: [
        {
          topic: args.str("topic"),
          numPartitions: args.num("partitions", 1),
          replicationFactor: args.num("replication", 1),
          configEntries: args.pairs("configs"),
        },
      ],
    }).then((created) => {
      // kafkajs turns TOPIC_ALREADY_EXISTS into "not created".
      if (!created) throw Object.assign(new Error("topic exists"), { code: 36 });
    }),
  partitions: (admin, args) =>
    admin.createPartitions({ topicPartitions: [{ topic: args.str("topic"), count: args.num("total") }] }),
  delete_topics: (admin, args) => admin.deleteTopics({ topics: args.list("topics") }),
  delete_records: async (admin, args) => {
    const [topic, partition] = [args.str("topic"), args.num("partition")];
    // It only knows the leader of a topic that it has been asked about before.
    await admin.fetchTopicOffsets(topic);
    await admin.deleteTopicRecords({ topic, partitions: [{ partition, offset: args.str("before") }] });
    // kafkajs does not hand out the answer's low watermark; the start offset says the same.
    const found = await admin.fetchTopicOffsets(topic);
    return { low: Number(found.find((p) => p.partition === partition).low) };
  },
  groups: async (admin) => ({ groups: (await admin.listGroups()).groups.map((g) => g.groupId) }),
  describe_group: async (admin, args) => {
    const [found] = (await admin.describeGroups([args.str("group")])).groups;
    return { state: found.state, members: found.members.length };
  },
  delete_group: (admin, args) => admin.deleteGroups([args.str("group")]),
};

const verbs = { produce, consume, commit, committed, member, topics, offsets, configs };

// Kafka's number of an error, which kafkajs wraps in several ways.
function codeOf(error) {
  for (const inner of [error, error?.originalError, error?.cause, ...(error?.errors ?? []), ...(error?.groups ?? [])]) {
    const code = inner?.code ?? inner?.errorCode ?? inner?.error?.code;
    if (typeof code === "number") return code;
    if (inner && inner !== error) {
      const deeper = codeOf(inner);
      if (deeper !== -1) return deeper;
    }
  }
  // Some errors keep only the text.
  if (/not the correct coordinator/.test(String(error))) return 16;
  if (/coordinator is loading|loading and hence/.test(String(error))) return 14;
  return -1;
}

// kafkajs does not try again where other clients do: coordinator loading, moving or not there, or
// no leader yet.
async function patiently(run) {
  for (let left = 40; ; left--) {
    try {
      return await run();
    } catch (error) {
      if (left === 0 || ![5, 6, 14, 15, 16].includes(codeOf(error))) throw error;
      await new Promise((resolve) => setTimeout(resolve, 250));
    }
  }
}

async function main() {
  const [verb, bootstrap, ...rest] = process.argv.slice(2);
  const args = parseArgs(rest);
  try {
    const run = verbs[verb] ?? (() => withAdmin(bootstrap, (admin) => adminVerbs[verb](admin, args)));
    const found = await patiently(() => run(bootstrap, args));
    say({ ok: true, ...(found ?? {}) });
  } catch (error) {
    say({ ok: false, code: codeOf(error), error: String(error) });
  }
}

main().then(() => process.exit(0));
