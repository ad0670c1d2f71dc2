// End-to-end client programs with franz-go and sarama: LIBRARY VERB BOOTSTRAP name=value...
//
// Prints JSON lines; the last is {"ok":true,...} or {"ok":false,"code":N,"error":"..."} with
// Kafka's error number.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"time"
)

type verb func(bootstrap string, args args, answer map[string]any) error

func main() {
	library, name, bootstrap := os.Args[1], os.Args[2], os.Args[3]
	verbs, code := franzVerbs, franzCode
	if library == "sarama" {
		verbs, code = saramaVerbs, saramaCode
	}
	run, known := verbs[name]
	if !known {
		fmt.Fprintln(os.Stderr, "unknown verb", name)
		os.Exit(2)
	}
	answer := map[string]any{"ok": true}
	if err := patiently(code, func() error { return run(bootstrap, parseArgs(os.Args[4:]), answer) }); err != nil {
		answer = map[string]any{"ok": false, "code": code(err), "error": err.Error()}
	}
	say(answer)
}

// patiently tries again where there is no leader yet, or a coordinator is loading or moving: sarama
// hands these to its user.
func patiently(code func(error) int, run func() error) error {
	for left := 40; ; left-- {
		err := run()
		if err == nil || left == 0 {
			return err
		}
		switch code(err) {
		case 5, 6, 14, 15, 16:
			time.Sleep(250 * time.Millisecond)
		default:
			return err
		}
	}
}

var sayLock sync.Mutex

// say prints one JSON line.
func say(event map[string]any) {
	sayLock.Lock()
	defer sayLock.Unlock()
	line, err := json.Marshal(event)
	if err != nil {
		panic(err)
	}
	os.Stdout.Write(append(line, '\n'))
}

// stopped is closed when standard input ends.
func stopped() <-chan struct{} {
	stop := make(chan struct{})
	go func() {
		buffer := make([]byte, 64)
		for {
			if _, err := os.Stdin.Read(buffer); err != nil {
				close(stop)
				return
			}
		}
	}()
	return stop
}
