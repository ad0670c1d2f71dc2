package main

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash"
	"strconv"
	"strings"
)

// args are the name=value arguments of a verb.
type args map[string]string

func parseArgs(argv []string) args {
	out := args{}
	for _, arg := range argv {
		name, value, _ := strings.Cut(arg, "=")
		out[name] = value
	}
	return out
}

func (a args) has(name string) bool {
	_, found := a[name]
	return found
}

func (a args) str(name, fallback string) string {
	if value, found := a[name]; found {
		return value
	}
	return fallback
}

func (a args) num(name string, fallback int64) int64 {
	value, found := a[name]
	if !found {
		return fallback
	}
	number, err := strconv.ParseInt(value, 10, 64)
	if err != nil {
		panic(fmt.Sprintf("argument %s is not a number: %q", name, value))
	}
	return number
}

func (a args) list(name string) []string {
	if a[name] == "" {
		return nil
	}
	return strings.Split(a[name], ",")
}

func (a args) pairs(name string) map[string]*string {
	out := map[string]*string{}
	for _, part := range a.list(name) {
		key, value, _ := strings.Cut(part, "=")
		out[key] = &value
	}
	return out
}

func (a args) partitions() []int32 {
	var out []int32
	for _, part := range a.list("partitions") {
		number, err := strconv.Atoi(part)
		if err != nil {
			panic(err)
		}
		out = append(out, int32(number))
	}
	return out
}

type header struct {
	name  string
	value []byte
}

// records makes record number i, the same in every language.
type records struct {
	shape       string
	seed        int64
	sizes       []int
	nullHeaders bool
}

func newRecords(a args) records {
	r := records{shape: a.str("shape", "mixed"), seed: a.num("seed", 0), nullHeaders: a.str("null_headers", "true") == "true"}
	for _, size := range a.list("sizes") {
		number, err := strconv.Atoi(size)
		if err != nil {
			panic(err)
		}
		r.sizes = append(r.sizes, number)
	}
	if len(r.sizes) == 0 {
		r.sizes = []int{100}
	}
	return r
}

func (r records) key(i int) []byte {
	switch {
	case r.shape == "mixed" && i%4 == 0 && i%5 != 4:
		return nil
	case r.shape == "mixed" || r.shape == "keyed":
		return []byte(fmt.Sprintf("key-%d", i%16))
	}
	return []byte(fmt.Sprintf("k%d", i))
}

func (r records) value(i int) []byte {
	if r.shape == "mixed" && i%5 == 4 {
		return nil
	}
	out := make([]byte, r.sizes[i%len(r.sizes)])
	for j := range out {
		out[j] = byte(r.seed + 31*int64(i) + 7*int64(j))
	}
	return out
}

func (r records) headers(i int) []header {
	var out []header
	if r.shape == "mixed" {
		for k := 0; k < i%3; k++ {
			value := []byte(fmt.Sprintf("v%d", i))
			if k == 1 && r.nullHeaders {
				value = nil
			}
			out = append(out, header{fmt.Sprintf("h%d", k), value})
		}
	}
	return out
}

// seen has first and last offset, count and digest for each partition.
type seen struct {
	digests    map[int32]hash.Hash
	partitions map[string]map[string]any
}

func newSeen() *seen {
	return &seen{map[int32]hash.Hash{}, map[string]map[string]any{}}
}

func (s *seen) add(partition int32, offset int64, key, value []byte, headers []header) {
	digest := s.digests[partition]
	name := strconv.Itoa(int(partition))
	if digest == nil {
		digest = sha256.New()
		s.digests[partition] = digest
		s.partitions[name] = map[string]any{"first": offset, "count": 0}
	}
	part(digest, key)
	part(digest, value)
	var length [4]byte
	binary.BigEndian.PutUint32(length[:], uint32(len(headers)))
	digest.Write(length[:])
	for _, h := range headers {
		part(digest, []byte(h.name))
		part(digest, h.value)
	}
	entry := s.partitions[name]
	entry["last"] = offset
	entry["count"] = entry["count"].(int) + 1
}

func (s *seen) result() map[string]map[string]any {
	for partition, digest := range s.digests {
		s.partitions[strconv.Itoa(int(partition))]["digest"] = hex.EncodeToString(digest.Sum(nil))
	}
	return s.partitions
}

func part(digest hash.Hash, bytes []byte) {
	length := int32(-1)
	if bytes != nil {
		length = int32(len(bytes))
	}
	var prefix [4]byte
	binary.BigEndian.PutUint32(prefix[:], uint32(length))
	digest.Write(prefix[:])
	digest.Write(bytes)
}
