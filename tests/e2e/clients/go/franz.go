package main

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

var franzVerbs = map[string]verb{
	"produce":        franzProduce,
	"consume":        franzConsume,
	"commit":         franzCommit,
	"committed":      franzCommitted,
	"member":         franzMember,
	"create":         franzAdmin(franzCreate),
	"partitions":     franzAdmin(franzPartitions),
	"delete_topics":  franzAdmin(franzDeleteTopics),
	"topics":         franzAdmin(franzTopics),
	"offsets":        franzAdmin(franzOffsets),
	"configs":        franzAdmin(franzConfigs),
	"alter":          franzAdmin(franzAlter),
	"delete_records": franzAdmin(franzDeleteRecords),
	"groups":         franzAdmin(franzGroups),
	"describe_group": franzAdmin(franzDescribeGroup),
	"delete_group":   franzAdmin(franzDeleteGroup),
}

func franzCode(err error) int {
	var known *kerr.Error
	if errors.As(err, &known) {
		return int(known.Code)
	}
	return -1
}

func limit() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), 40*time.Second)
}

func franzProduce(bootstrap string, a args, answer map[string]any) error {
	codecs := map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}
	acks := map[string]kgo.Acks{"0": kgo.NoAck(), "1": kgo.LeaderAck(), "all": kgo.AllISRAcks()}
	options := []kgo.Opt{
		kgo.SeedBrokers(bootstrap),
		kgo.ProducerBatchCompression(codecs[a.str("codec", "none")]),
		kgo.RequiredAcks(acks[a.str("acks", "all")]),
		kgo.ProducerBatchMaxBytes(int32(franzBatch(a))),
		kgo.ProducerLinger(time.Duration(a.num("linger_ms", 5)) * time.Millisecond),
		kgo.AllowAutoTopicCreation(),
	}
	if a.str("idempotent", "false") != "true" {
		options = append(options, kgo.DisableIdempotentWrite())
	}
	if a.has("partition") {
		options = append(options, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := limit()
	defer cancel()
	made, count := newRecords(a), int(a.num("count", 1))
	results := make([]kgo.ProduceResult, count)
	var waiting sync.WaitGroup
	for i := 0; i < count; i++ {
		record := &kgo.Record{
			Topic: a["topic"], Partition: int32(a.num("partition", 0)), Key: made.key(i), Value: made.value(i),
		}
		for _, h := range made.headers(i) {
			record.Headers = append(record.Headers, kgo.RecordHeader{Key: h.name, Value: h.value})
		}
		if a.has("ts_base") {
			record.Timestamp = time.UnixMilli(a.num("ts_base", 0) + int64(i)*a.num("ts_step", 1))
		}
		waiting.Add(1)
		client.Produce(ctx, record, func(r *kgo.Record, err error) {
			results[i] = kgo.ProduceResult{Record: r, Err: err}
			waiting.Done()
		})
	}
	waiting.Wait()
	all := newSeen()
	for i, result := range results {
		if result.Err != nil {
			return result.Err
		}
		offset := result.Record.Offset
		if a.str("acks", "all") == "0" {
			offset = -1
		}
		all.add(result.Record.Partition, offset, made.key(i), made.value(i), made.headers(i))
	}
	answer["partitions"] = all.result()
	return nil
}

// franzBatch keeps batches small, but large enough for the largest record.
func franzBatch(a args) int64 {
	largest := int64(0)
	for _, size := range newRecords(a).sizes {
		largest = max(largest, int64(size))
	}
	return max(a.num("batch_size", 16384), largest+1000)
}

func franzConsume(bootstrap string, a args, answer map[string]any) error {
	start := kgo.NewOffset().At(a.num("from", -2))
	places := map[string]map[int32]kgo.Offset{a["topic"]: {}}
	for _, partition := range a.partitions() {
		places[a["topic"]][partition] = start
	}
	client, err := kgo.NewClient(
		kgo.SeedBrokers(bootstrap),
		kgo.ConsumePartitions(places),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()),
		kgo.FetchMaxWait(100*time.Millisecond),
		kgo.KeepControlRecords(),
	)
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	count, got, all := int(a.num("count", 1)), 0, newSeen()
	for got < count && ctx.Err() == nil {
		fetches := client.PollFetches(ctx)
		for _, failure := range fetches.Errors() {
			if ctx.Err() == nil {
				return failure.Err
			}
		}
		fetches.EachRecord(func(r *kgo.Record) {
			if got++; got > count {
				return
			}
			all.add(r.Partition, r.Offset, r.Key, r.Value, fromFranz(r.Headers))
			if got == 1 {
				answer["first_timestamp"] = r.Timestamp.UnixMilli()
			}
			answer["last_timestamp"] = r.Timestamp.UnixMilli()
		})
	}
	answer["got"] = min(got, count)
	answer["partitions"] = all.result()
	return nil
}

func fromFranz(headers []kgo.RecordHeader) []header {
	var out []header
	for _, h := range headers {
		out = append(out, header{h.Key, h.Value})
	}
	return out
}

func franzCommit(bootstrap string, a args, _ map[string]any) error {
	return withAdmin(bootstrap, func(ctx context.Context, admin *kadm.Client) error {
		offsets := kadm.Offsets{}
		offsets.Add(kadm.Offset{
			Topic: a["topic"], Partition: int32(a.num("partition", 0)), At: a.num("offset", 0),
			LeaderEpoch: -1, Metadata: a.str("metadata", ""),
		})
		done, err := admin.CommitOffsets(ctx, a["group"], offsets)
		return errors.Join(err, done.Error())
	})
}

func franzCommitted(bootstrap string, a args, answer map[string]any) error {
	return withAdmin(bootstrap, func(ctx context.Context, admin *kadm.Client) error {
		found, err := admin.FetchOffsets(ctx, a["group"])
		if err != nil {
			return err
		}
		answer["offset"], answer["metadata"] = -1, ""
		if place, ok := found.Lookup(a["topic"], int32(a.num("partition", 0))); ok {
			if place.Err != nil {
				return place.Err
			}
			answer["offset"], answer["metadata"] = place.At, place.Metadata
		}
		return nil
	})
}

func franzMember(bootstrap string, a args, _ map[string]any) error {
	var lock sync.Mutex
	owned := map[int32]bool{}
	change := func(partitions map[string][]int32, have bool) {
		lock.Lock()
		defer lock.Unlock()
		for _, partition := range partitions[a["topic"]] {
			if have {
				owned[partition] = true
			} else {
				delete(owned, partition)
			}
		}
		sayAssigned(owned)
	}
	lost := func(_ context.Context, _ *kgo.Client, gone map[string][]int32) { change(gone, false) }
	options := []kgo.Opt{
		kgo.SeedBrokers(bootstrap),
		kgo.ConsumerGroup(a["group"]),
		kgo.ConsumeTopics(a["topic"]),
		kgo.ConsumeStartOffset(kgo.NewOffset().AtStart()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.SessionTimeout(time.Duration(a.num("session_ms", 10000)) * time.Millisecond),
		kgo.HeartbeatInterval(500 * time.Millisecond),
		kgo.MetadataMinAge(time.Second),
		kgo.MetadataMaxAge(2 * time.Second),
		kgo.FetchMaxWait(100 * time.Millisecond),
		kgo.DisableAutoCommit(),
		kgo.BlockRebalanceOnPoll(),
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, added map[string][]int32) { change(added, true) }),
		kgo.OnPartitionsRevoked(lost),
		kgo.OnPartitionsLost(lost),
	}
	if a.has("instance") {
		options = append(options, kgo.InstanceID(a["instance"]))
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	stop := stopped()
	go func() {
		<-stop
		cancel()
	}()
	for ctx.Err() == nil {
		fetches := client.PollFetches(ctx)
		for _, failure := range fetches.Errors() {
			if errors.Is(failure.Err, kerr.FencedInstanceID) {
				return failure.Err
			}
			if ctx.Err() == nil {
				say(map[string]any{"event": "error", "code": franzCode(failure.Err), "text": failure.Err.Error()})
			}
		}
		fetches.EachRecord(func(r *kgo.Record) {
			say(map[string]any{"event": "record", "partition": r.Partition, "offset": r.Offset})
		})
		if !fetches.Empty() {
			if err := client.CommitUncommittedOffsets(context.Background()); err != nil {
				say(map[string]any{"event": "commit_refused", "code": franzCode(err)})
			}
		}
		client.AllowRebalance()
	}
	client.CloseAllowingRebalance()
	say(map[string]any{"event": "closed"})
	return nil
}

func sayAssigned(owned map[int32]bool) {
	partitions := []int32{}
	for partition := range owned {
		partitions = append(partitions, partition)
	}
	sort.Slice(partitions, func(i, j int) bool { return partitions[i] < partitions[j] })
	say(map[string]any{"event": "assigned", "partitions": partitions})
}

func withAdmin(bootstrap string, do func(context.Context, *kadm.Client) error) error {
	client, err := kgo.NewClient(kgo.SeedBrokers(bootstrap))
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := limit()
	defer cancel()
	return do(ctx, kadm.NewClient(client))
}

type franzAdminVerb func(ctx context.Context, admin *kadm.Client, a args, answer map[string]any) error

func franzAdmin(do franzAdminVerb) verb {
	return func(bootstrap string, a args, answer map[string]any) error {
		return withAdmin(bootstrap, func(ctx context.Context, admin *kadm.Client) error {
			return do(ctx, admin, a, answer)
		})
	}
}

func franzCreate(ctx context.Context, admin *kadm.Client, a args, _ map[string]any) error {
	done, err := admin.CreateTopic(ctx, int32(a.num("partitions", 1)), int16(a.num("replication", 1)), a.pairs("configs"), a["topic"])
	return errors.Join(err, done.Err)
}

func franzPartitions(ctx context.Context, admin *kadm.Client, a args, _ map[string]any) error {
	done, err := admin.UpdatePartitions(ctx, int(a.num("total", 1)), a["topic"])
	return errors.Join(err, done.Error())
}

func franzDeleteTopics(ctx context.Context, admin *kadm.Client, a args, _ map[string]any) error {
	done, err := admin.DeleteTopics(ctx, a.list("topics")...)
	return errors.Join(err, done.Error())
}

func franzTopics(ctx context.Context, admin *kadm.Client, _ args, answer map[string]any) error {
	found, err := admin.ListTopics(ctx)
	topics := map[string]int{}
	for name, topic := range found {
		topics[name] = len(topic.Partitions)
	}
	answer["topics"] = topics
	return err
}

func franzOffsets(ctx context.Context, admin *kadm.Client, a args, answer map[string]any) error {
	var found kadm.ListedOffsets
	var err error
	switch at := a.num("at", -1); at {
	case -1:
		found, err = admin.ListEndOffsets(ctx, a["topic"])
	case -2:
		found, err = admin.ListStartOffsets(ctx, a["topic"])
	default:
		found, err = admin.ListOffsetsAfterMilli(ctx, at, a["topic"])
	}
	if err != nil {
		return err
	}
	place, ok := found.Lookup(a["topic"], int32(a.num("partition", 0)))
	if !ok {
		return fmt.Errorf("no answer for the partition")
	}
	answer["offset"], answer["timestamp"] = place.Offset, place.Timestamp
	return place.Err
}

func franzConfigs(ctx context.Context, admin *kadm.Client, a args, answer map[string]any) error {
	found, err := admin.DescribeTopicConfigs(ctx, a["topic"])
	if err != nil {
		return err
	}
	resource, err := found.On(a["topic"], nil)
	values := map[string]any{}
	for _, config := range resource.Configs {
		values[config.Key] = config.MaybeValue()
	}
	answer["configs"] = values
	return errors.Join(err, resource.Err)
}

func franzAlter(ctx context.Context, admin *kadm.Client, a args, _ map[string]any) error {
	var changes []kadm.AlterConfig
	for name, value := range a.pairs("set") {
		changes = append(changes, kadm.AlterConfig{Op: kadm.SetConfig, Name: name, Value: value})
	}
	for _, name := range a.list("delete") {
		changes = append(changes, kadm.AlterConfig{Op: kadm.DeleteConfig, Name: name})
	}
	done, err := admin.AlterTopicConfigs(ctx, changes, a["topic"])
	if err != nil {
		return err
	}
	one, err := done.On(a["topic"], nil)
	return errors.Join(err, one.Err)
}

func franzDeleteRecords(ctx context.Context, admin *kadm.Client, a args, answer map[string]any) error {
	offsets := kadm.Offsets{}
	partition := int32(a.num("partition", 0))
	offsets.AddOffset(a["topic"], partition, a.num("before", 0), -1)
	done, err := admin.DeleteRecords(ctx, offsets)
	if err != nil {
		return err
	}
	one, _ := done.Lookup(a["topic"], partition)
	answer["low"] = one.LowWatermark
	return one.Err
}

func franzGroups(ctx context.Context, admin *kadm.Client, _ args, answer map[string]any) error {
	found, err := admin.ListGroups(ctx)
	answer["groups"] = found.Groups()
	return err
}

func franzDescribeGroup(ctx context.Context, admin *kadm.Client, a args, answer map[string]any) error {
	found, err := admin.DescribeGroups(ctx, a["group"])
	if err != nil {
		return err
	}
	group := found[a["group"]]
	answer["state"], answer["members"] = strings.TrimSpace(group.State), len(group.Members)
	return group.Err
}

func franzDeleteGroup(ctx context.Context, admin *kadm.Client, a args, _ map[string]any) error {
	done, err := admin.DeleteGroup(ctx, a["group"])
	return errors.Join(err, done.Err)
}
