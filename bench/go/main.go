// The same measurements as bench/src/main.rs, on Go asynq with its defaults.
package main

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"sort"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hibiken/asynq"
)

func main() {
	figure := os.Args[1]
	flags := flag.NewFlagSet(figure, flag.ExitOnError)
	redis := flags.String("redis", "127.0.0.1:6379", "host:port, or the path of a socket")
	queue := flags.String("queue", "bench", "queue to use")
	tasks := flags.Int("tasks", 0, "tasks to enqueue")
	callers := flags.Int("callers", 1, "concurrent callers")
	concurrency := flags.Int("concurrency", 50, "concurrency of the server")
	workMs := flags.Int("work-ms", 0, "milliseconds each handler takes")
	rate := flags.Int("rate", 100, "tasks per second")
	seconds := flags.Int("seconds", 5, "seconds to enqueue")
	_ = flags.Parse(os.Args[2:])
	opt := asynq.RedisClientOpt{Addr: *redis}
	if strings.HasPrefix(*redis, "/") {
		opt.Network = "unix"
	}
	var report map[string]any
	switch figure {
	case "enqueue":
		report = enqueue(opt, *queue, *tasks, *callers)
	case "drain":
		report = drain(opt, *queue, *concurrency, time.Duration(*workMs)*time.Millisecond)
	case "e2e":
		report = endToEnd(opt, *queue, *tasks, *callers, *concurrency)
	case "latency":
		report = latency(opt, *queue, *rate, *seconds, *concurrency)
	case "late":
		report = late(opt, *queue, *tasks, *seconds, *concurrency)
	case "idle":
		idle(opt, *seconds)
		report = map[string]any{}
	default:
		fmt.Fprintln(os.Stderr, "unknown figure", figure)
		os.Exit(2)
	}
	_ = json.NewEncoder(os.Stdout).Encode(report)
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func payload() []byte { return []byte(strings.Repeat("x", 200)) }

func speed(tasks int, started time.Time) map[string]any {
	seconds := time.Since(started).Seconds()
	return map[string]any{"tasks": tasks, "seconds": seconds, "per_second": float64(tasks) / seconds}
}

func enqueue(opt asynq.RedisClientOpt, queue string, tasks, callers int) map[string]any {
	client := asynq.NewClient(opt)
	defer client.Close()
	must(client.Ping())
	started := time.Now()
	call(client, queue, tasks, callers)
	return speed(tasks, started)
}

func call(client *asynq.Client, queue string, tasks, callers int) {
	var wait sync.WaitGroup
	for caller := 0; caller < callers; caller++ {
		share := tasks / callers
		if caller < tasks%callers {
			share++
		}
		wait.Add(1)
		go func() {
			defer wait.Done()
			for n := 0; n < share; n++ {
				_, err := client.Enqueue(asynq.NewTask("bench:noop", payload()), asynq.Queue(queue))
				must(err)
			}
		}()
	}
	wait.Wait()
}

// Enqueues and works at the same time, until all is done.
func endToEnd(opt asynq.RedisClientOpt, queue string, tasks, callers, concurrency int) map[string]any {
	client := asynq.NewClient(opt)
	defer client.Close()
	var worked atomic.Int64
	done := make(chan struct{})
	s := server(opt, queue, concurrency)
	must(s.Start(asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
		if worked.Add(1) == int64(tasks) {
			close(done)
		}
		return nil
	})))
	started := time.Now()
	call(client, queue, tasks, callers)
	<-done
	report := speed(tasks, started)
	s.Shutdown()
	return report
}

// A server with four empty queues.
func idle(opt asynq.RedisClientOpt, seconds int) {
	s := asynq.NewServer(opt, asynq.Config{
		Queues:   map[string]int{"idle-1": 1, "idle-2": 1, "idle-3": 1, "idle-4": 1},
		LogLevel: asynq.ErrorLevel,
	})
	must(s.Start(asynq.HandlerFunc(func(context.Context, *asynq.Task) error { return nil })))
	time.Sleep(time.Duration(seconds) * time.Second)
	s.Shutdown()
}

// By how much scheduled tasks start after the second they are due.
func late(opt asynq.RedisClientOpt, queue string, tasks, seconds, concurrency int) map[string]any {
	client := asynq.NewClient(opt)
	defer client.Close()
	samples := make(chan time.Duration, tasks)
	s := server(opt, queue, concurrency)
	must(s.Start(asynq.HandlerFunc(func(_ context.Context, task *asynq.Task) error {
		due := time.Unix(0, int64(binary.LittleEndian.Uint64(task.Payload())))
		samples <- time.Since(due)
		return nil
	})))
	first := time.Now().Truncate(time.Second).Add(3 * time.Second)
	for n := 0; n < tasks; n++ {
		due := first.Add(time.Duration(n%seconds) * time.Second)
		body := payload()
		binary.LittleEndian.PutUint64(body, uint64(due.UnixNano()))
		_, err := client.Enqueue(asynq.NewTask("bench:noop", body), asynq.Queue(queue), asynq.ProcessAt(due))
		must(err)
	}
	var all []time.Duration
	for len(all) < tasks {
		all = append(all, <-samples)
	}
	s.Shutdown()
	return spread(all)
}

func server(opt asynq.RedisClientOpt, queue string, concurrency int) *asynq.Server {
	return asynq.NewServer(opt, asynq.Config{
		Concurrency: concurrency,
		Queues:      map[string]int{queue: 1},
		LogLevel:    asynq.ErrorLevel,
	})
}

func drain(opt asynq.RedisClientOpt, queue string, concurrency int, work time.Duration) map[string]any {
	inspector := asynq.NewInspector(opt)
	info, err := inspector.GetQueueInfo(queue)
	must(err)
	left := int64(info.Pending)
	empty := make(chan struct{})
	handler := func(context.Context, *asynq.Task) error {
		if work > 0 {
			time.Sleep(work)
		}
		if atomic.AddInt64(&left, -1) == 0 {
			close(empty)
		}
		return nil
	}
	started := time.Now()
	s := server(opt, queue, concurrency)
	must(s.Start(asynq.HandlerFunc(handler)))
	worked := func() int { return info.Pending - int(atomic.LoadInt64(&left)) }
	for waiting := info.Pending > 0; waiting; {
		select {
		case <-empty:
			waiting = false
		case <-time.After(100 * time.Millisecond):
			// Others may be working the queue too.
			now, err := inspector.GetQueueInfo(queue)
			must(err)
			waiting = now.Pending+now.Active > 0
		}
	}
	s.Shutdown()
	return speed(worked(), started)
}

func latency(opt asynq.RedisClientOpt, queue string, rate, seconds, concurrency int) map[string]any {
	client := asynq.NewClient(opt)
	defer client.Close()
	epoch := time.Now()
	var lock sync.Mutex
	var samples []time.Duration
	handler := func(_ context.Context, task *asynq.Task) error {
		now := time.Since(epoch)
		sent := time.Duration(binary.LittleEndian.Uint64(task.Payload()))
		lock.Lock()
		defer lock.Unlock()
		samples = append(samples, now-sent)
		return nil
	}
	s := server(opt, queue, concurrency)
	must(s.Start(asynq.HandlerFunc(handler)))
	time.Sleep(300 * time.Millisecond)
	total := rate * seconds
	start := time.Now()
	var wait sync.WaitGroup
	for n := 0; n < total; n++ {
		time.Sleep(time.Until(start.Add(time.Second / time.Duration(rate) * time.Duration(n))))
		wait.Add(1)
		go func() {
			defer wait.Done()
			body := payload()
			binary.LittleEndian.PutUint64(body, uint64(time.Since(epoch)))
			_, err := client.Enqueue(asynq.NewTask("bench:noop", body), asynq.Queue(queue))
			must(err)
		}()
	}
	wait.Wait()
	for {
		lock.Lock()
		count := len(samples)
		lock.Unlock()
		if count >= total {
			break
		}
		time.Sleep(5 * time.Millisecond)
	}
	s.Shutdown()
	return spread(samples)
}

func spread(samples []time.Duration) map[string]any {
	sort.Slice(samples, func(a, b int) bool { return samples[a] < samples[b] })
	at := func(share float64) float64 {
		return float64(samples[int(float64(len(samples)-1)*share)]) / float64(time.Millisecond)
	}
	return map[string]any{"n": len(samples), "p50_ms": at(0.5), "p99_ms": at(0.99), "max_ms": at(1)}
}
