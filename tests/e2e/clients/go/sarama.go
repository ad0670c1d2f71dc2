package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/IBM/sarama"
)

var saramaVerbs = map[string]verb{
	"produce":        saramaProduce,
	"consume":        saramaConsume,
	"commit":         saramaCommit,
	"committed":      saramaAdmin(saramaCommitted),
	"member":         saramaMember,
	"create":         saramaAdmin(saramaCreate),
	"partitions":     saramaAdmin(saramaPartitions),
	"delete_topics":  saramaAdmin(saramaDeleteTopics),
	"topics":         saramaAdmin(saramaTopics),
	"offsets":        saramaOffsets,
	"configs":        saramaAdmin(saramaConfigs),
	"alter":          saramaAdmin(saramaAlter),
	"delete_records": saramaDeleteRecords,
	"groups":         saramaAdmin(saramaGroups),
	"describe_group": saramaAdmin(saramaDescribeGroup),
	"delete_group":   saramaAdmin(saramaDeleteGroup),
}

func saramaCode(err error) int {
	var code sarama.KError
	if errors.As(err, &code) {
		return int(code)
	}
	var topic *sarama.TopicError
	if errors.As(err, &topic) {
		return int(topic.Err)
	}
	var partition *sarama.TopicPartitionError
	if errors.As(err, &partition) {
		return int(partition.Err)
	}
	return -1
}

func saramaConfig(a args) *sarama.Config {
	codecs := map[string]sarama.CompressionCodec{
		"none": sarama.CompressionNone, "gzip": sarama.CompressionGZIP, "snappy": sarama.CompressionSnappy,
		"lz4": sarama.CompressionLZ4, "zstd": sarama.CompressionZSTD,
	}
	acks := map[string]sarama.RequiredAcks{"0": sarama.NoResponse, "1": sarama.WaitForLocal, "all": sarama.WaitForAll}
	config := sarama.NewConfig()
	config.Version = sarama.V3_6_0_0
	config.Producer.Compression = codecs[a.str("codec", "none")]
	config.Producer.RequiredAcks = acks[a.str("acks", "all")]
	// Also the limit of a whole batch.
	config.Producer.MaxMessageBytes = 11500000
	config.Producer.Flush.Frequency = time.Duration(a.num("linger_ms", 5)) * time.Millisecond
	config.Producer.Flush.MaxMessages = int(max(a.num("batch_size", 100000)/10, 1))
	config.Producer.Return.Successes = true
	config.Consumer.Return.Errors = true
	config.Consumer.MaxWaitTime = 100 * time.Millisecond
	config.Metadata.RefreshFrequency = 2 * time.Second
	if a.str("idempotent", "false") == "true" {
		config.Producer.Idempotent = true
		config.Net.MaxOpenRequests = 1
	}
	if a.has("partition") {
		config.Producer.Partitioner = sarama.NewManualPartitioner
	}
	return config
}

func saramaProduce(bootstrap string, a args, answer map[string]any) error {
	producer, err := sarama.NewAsyncProducer([]string{bootstrap}, saramaConfig(a))
	if err != nil {
		return err
	}
	made, count := newRecords(a), int(a.num("count", 1))
	go func() {
		for i := 0; i < count; i++ {
			message := &sarama.ProducerMessage{Topic: a["topic"], Partition: int32(a.num("partition", 0)), Metadata: i}
			if key := made.key(i); key != nil {
				message.Key = sarama.ByteEncoder(key)
			}
			if value := made.value(i); value != nil {
				message.Value = sarama.ByteEncoder(value)
			}
			for _, h := range made.headers(i) {
				message.Headers = append(message.Headers, sarama.RecordHeader{Key: []byte(h.name), Value: h.value})
			}
			if a.has("ts_base") {
				message.Timestamp = time.UnixMilli(a.num("ts_base", 0) + int64(i)*a.num("ts_step", 1))
			}
			producer.Input() <- message
		}
	}()
	outcomes := make([]*sarama.ProducerMessage, count)
	for done := 0; done < count; done++ {
		select {
		case message := <-producer.Successes():
			outcomes[message.Metadata.(int)] = message
		case failure := <-producer.Errors():
			return failure.Err
		}
	}
	all := newSeen()
	for i, message := range outcomes {
		offset := message.Offset
		if a.str("acks", "all") == "0" {
			offset = -1
		}
		all.add(message.Partition, offset, made.key(i), made.value(i), made.headers(i))
	}
	answer["partitions"] = all.result()
	return producer.Close()
}

func saramaConsume(bootstrap string, a args, answer map[string]any) error {
	consumer, err := sarama.NewConsumer([]string{bootstrap}, saramaConfig(args{}))
	if err != nil {
		return err
	}
	defer consumer.Close()
	count, got, all := int(a.num("count", 1)), 0, newSeen()
	deadline := time.After(30 * time.Second)
	for _, partition := range a.partitions() {
		reader, err := consumer.ConsumePartition(a["topic"], partition, a.num("from", -2))
		if err != nil {
			return err
		}
		for got < count {
			select {
			case message := <-reader.Messages():
				got++
				all.add(message.Partition, message.Offset, message.Key, message.Value, fromSarama(message.Headers))
				if got == 1 {
					answer["first_timestamp"] = message.Timestamp.UnixMilli()
				}
				answer["last_timestamp"] = message.Timestamp.UnixMilli()
			case failure := <-reader.Errors():
				return failure.Err
			case <-deadline:
				return fmt.Errorf("only %d of %d records came", got, count)
			}
		}
		reader.AsyncClose()
	}
	answer["got"] = got
	answer["partitions"] = all.result()
	return nil
}

func fromSarama(headers []*sarama.RecordHeader) []header {
	var out []header
	for _, h := range headers {
		out = append(out, header{string(h.Key), h.Value})
	}
	return out
}

func saramaCommit(bootstrap string, a args, _ map[string]any) error {
	config := saramaConfig(args{})
	config.Consumer.Offsets.AutoCommit.Enable = false
	client, err := sarama.NewClient([]string{bootstrap}, config)
	if err != nil {
		return err
	}
	defer client.Close()
	manager, err := sarama.NewOffsetManagerFromClient(a["group"], client)
	if err != nil {
		return err
	}
	place, err := manager.ManagePartition(a["topic"], int32(a.num("partition", 0)))
	if err != nil {
		return err
	}
	place.MarkOffset(a.num("offset", 0), a.str("metadata", ""))
	manager.Commit()
	place.AsyncClose()
	err = manager.Close()
	for failure := range place.Errors() {
		err = errors.Join(err, failure.Err)
	}
	return err
}

type saramaHandler struct{ topic string }

func (h saramaHandler) Setup(session sarama.ConsumerGroupSession) error {
	owned := map[int32]bool{}
	for _, partition := range session.Claims()[h.topic] {
		owned[partition] = true
	}
	sayAssigned(owned)
	return nil
}

func (h saramaHandler) Cleanup(sarama.ConsumerGroupSession) error {
	sayAssigned(nil)
	return nil
}

func (h saramaHandler) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case message, open := <-claim.Messages():
			if !open {
				return nil
			}
			say(map[string]any{"event": "record", "partition": message.Partition, "offset": message.Offset})
			session.MarkMessage(message, "")
			session.Commit()
		case <-session.Context().Done():
			return nil
		}
	}
}

func saramaMember(bootstrap string, a args, _ map[string]any) error {
	config := saramaConfig(args{})
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	config.Consumer.Offsets.AutoCommit.Enable = false
	config.Consumer.Group.Session.Timeout = time.Duration(a.num("session_ms", 10000)) * time.Millisecond
	config.Consumer.Group.Heartbeat.Interval = 500 * time.Millisecond
	config.Consumer.Group.InstanceId = a.str("instance", "")
	group, err := sarama.NewConsumerGroup([]string{bootstrap}, a["group"], config)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	stop := stopped()
	go func() {
		<-stop
		cancel()
	}()
	var lock sync.Mutex
	var fenced error
	go func() {
		for failure := range group.Errors() {
			say(map[string]any{"event": "error", "code": saramaCode(failure), "text": failure.Error()})
			if errors.Is(failure, sarama.ErrFencedInstancedId) {
				lock.Lock()
				fenced = failure
				lock.Unlock()
				cancel()
			}
		}
	}()
	for ctx.Err() == nil {
		if err := group.Consume(ctx, []string{a["topic"]}, saramaHandler{a["topic"]}); err != nil {
			if errors.Is(err, sarama.ErrFencedInstancedId) {
				return err
			}
			say(map[string]any{"event": "error", "code": saramaCode(err), "text": err.Error()})
		}
	}
	lock.Lock()
	defer lock.Unlock()
	if fenced != nil {
		return fenced
	}
	if err := group.Close(); err != nil {
		return err
	}
	say(map[string]any{"event": "closed"})
	return nil
}

type saramaAdminVerb func(admin sarama.ClusterAdmin, a args, answer map[string]any) error

func saramaAdmin(do saramaAdminVerb) verb {
	return func(bootstrap string, a args, answer map[string]any) error {
		admin, err := sarama.NewClusterAdmin([]string{bootstrap}, saramaConfig(args{}))
		if err != nil {
			return err
		}
		defer admin.Close()
		return do(admin, a, answer)
	}
}

func saramaCommitted(admin sarama.ClusterAdmin, a args, answer map[string]any) error {
	partition := int32(a.num("partition", 0))
	found, err := admin.ListConsumerGroupOffsets(a["group"], map[string][]int32{a["topic"]: {partition}})
	if err != nil {
		return err
	}
	place := found.GetBlock(a["topic"], partition)
	answer["offset"], answer["metadata"] = place.Offset, place.Metadata
	if place.Err != sarama.ErrNoError {
		return place.Err
	}
	return nil
}

func saramaCreate(admin sarama.ClusterAdmin, a args, _ map[string]any) error {
	return admin.CreateTopic(a["topic"], &sarama.TopicDetail{
		NumPartitions: int32(a.num("partitions", 1)), ReplicationFactor: int16(a.num("replication", 1)),
		ConfigEntries: a.pairs("configs"),
	}, false)
}

func saramaPartitions(admin sarama.ClusterAdmin, a args, _ map[string]any) error {
	return admin.CreatePartitions(a["topic"], int32(a.num("total", 1)), nil, false)
}

func saramaDeleteTopics(admin sarama.ClusterAdmin, a args, _ map[string]any) error {
	for _, topic := range a.list("topics") {
		if err := admin.DeleteTopic(topic); err != nil {
			return err
		}
	}
	return nil
}

func saramaTopics(admin sarama.ClusterAdmin, _ args, answer map[string]any) error {
	found, err := admin.ListTopics()
	topics := map[string]int32{}
	for name, topic := range found {
		topics[name] = topic.NumPartitions
	}
	answer["topics"] = topics
	return err
}

func saramaOffsets(bootstrap string, a args, answer map[string]any) error {
	client, err := sarama.NewClient([]string{bootstrap}, saramaConfig(args{}))
	if err != nil {
		return err
	}
	defer client.Close()
	offset, err := client.GetOffset(a["topic"], int32(a.num("partition", 0)), a.num("at", -1))
	answer["offset"] = offset
	return err
}

func saramaConfigs(admin sarama.ClusterAdmin, a args, answer map[string]any) error {
	found, err := admin.DescribeConfig(sarama.ConfigResource{Type: sarama.TopicResource, Name: a["topic"]})
	values := map[string]string{}
	for _, entry := range found {
		values[entry.Name] = entry.Value
	}
	answer["configs"] = values
	return err
}

func saramaAlter(admin sarama.ClusterAdmin, a args, _ map[string]any) error {
	entries := map[string]sarama.IncrementalAlterConfigsEntry{}
	for name, value := range a.pairs("set") {
		entries[name] = sarama.IncrementalAlterConfigsEntry{Operation: sarama.IncrementalAlterConfigsOperationSet, Value: value}
	}
	for _, name := range a.list("delete") {
		entries[name] = sarama.IncrementalAlterConfigsEntry{Operation: sarama.IncrementalAlterConfigsOperationDelete}
	}
	return admin.IncrementalAlterConfig(sarama.TopicResource, a["topic"], entries, false)
}

func saramaDeleteRecords(bootstrap string, a args, answer map[string]any) error {
	client, err := sarama.NewClient([]string{bootstrap}, saramaConfig(args{}))
	if err != nil {
		return err
	}
	defer client.Close()
	admin, err := sarama.NewClusterAdminFromClient(client)
	if err != nil {
		return err
	}
	partition := int32(a.num("partition", 0))
	if err := admin.DeleteRecords(a["topic"], map[int32]int64{partition: a.num("before", 0)}); err != nil {
		return err
	}
	// sarama does not hand out the answer's low watermark; the start offset says the same.
	low, err := client.GetOffset(a["topic"], partition, sarama.OffsetOldest)
	answer["low"] = low
	return err
}

func saramaGroups(admin sarama.ClusterAdmin, _ args, answer map[string]any) error {
	found, err := admin.ListConsumerGroups()
	names := []string{}
	for name := range found {
		names = append(names, name)
	}
	answer["groups"] = names
	return err
}

func saramaDescribeGroup(admin sarama.ClusterAdmin, a args, answer map[string]any) error {
	found, err := admin.DescribeConsumerGroups([]string{a["group"]})
	if err != nil {
		return err
	}
	answer["state"], answer["members"] = found[0].State, len(found[0].Members)
	if found[0].Err != sarama.ErrNoError {
		return found[0].Err
	}
	return nil
}

func saramaDeleteGroup(admin sarama.ClusterAdmin, a args, _ map[string]any) error {
	return admin.DeleteConsumerGroup(a["group"])
}
