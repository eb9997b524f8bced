package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/hibiken/asynq"

	"queue.test/interop/internal/wire"
)

// recordServers runs a Go server through its states and records what its
// heartbeat writes.
func recordServers(r *recorder) error {
	if err := r.recordServer("plain", asynq.Config{Concurrency: 10}, wire.Fields{
		"concurrency": int64(10), "queues": map[string]int64{"default": 1}, "strict_priority": false,
	}); err != nil {
		return err
	}
	if err := r.recordServer("strict", asynq.Config{
		Concurrency:    300,
		StrictPriority: true,
		Queues:         map[string]int{"critical": 60, "default": 30, "низкий": 10},
	}, wire.Fields{
		"concurrency": int64(300), "strict_priority": true,
		// As configured: the common divisor is taken out for picking only.
		"queues": map[string]int64{"critical": 60, "default": 30, "низкий": 10},
	}); err != nil {
		return err
	}
	return r.recordBusyServer()
}

func (r *recorder) recordServer(name string, config asynq.Config, want wire.Fields) error {
	server := r.newServer(config)
	if err := server.Start(handlers()); err != nil {
		return err
	}
	defer server.Shutdown()
	want["status"], want["active_worker_count"] = "active", int64(0)
	return r.addServer("server/"+name, want)
}

// recordBusyServer records a server at work: active, stopped and closed.
func (r *recorder) recordBusyServer() error {
	server := r.newServer(asynq.Config{
		Concurrency: 5, Queues: map[string]int{"default": 2}, ShutdownTimeout: 6 * time.Second,
	})
	if err := server.Start(handlers()); err != nil {
		return err
	}
	shutdown := func() { server.Shutdown() }
	defer func() { shutdown() }()

	deadline := time.Now().Add(10 * time.Minute).Truncate(time.Second)
	tasks := []struct {
		task *asynq.Task
		opts []asynq.Option
		want wire.Fields
	}{
		{
			asynq.NewTask("stubborn", []byte("{\"id\":1}\x00\xff")),
			[]asynq.Option{asynq.TaskID("busy-1"), asynq.Timeout(time.Hour)},
			wire.Fields{"task_type": "stubborn", "task_payload": wire.Hex("{\"id\":1}\x00\xff")},
		},
		{
			asynq.NewTask("stubborn", nil),
			[]asynq.Option{asynq.TaskID("занят-2"), asynq.Deadline(deadline)},
			wire.Fields{
				"task_payload": wire.Hex(nil),
				"deadline":     wire.Timestamp{Seconds: deadline.Unix()},
			},
		},
	}
	for _, t := range tasks {
		if _, err := r.client.Enqueue(t.task, t.opts...); err != nil {
			return err
		}
	}
	busy := wire.Fields{"active_worker_count": int64(len(tasks)), "status": "active"}
	if err := r.addServer("server/busy", busy); err != nil {
		return err
	}
	workers, err := liveValue(r, "asynq:workers:", func(key string) (map[string]string, error) {
		return r.rdb.HGetAll(ctx, key).Result()
	})
	if err != nil {
		return err
	}
	for id, data := range workers {
		for _, t := range tasks {
			if t.opts[0].Value() != id {
				continue
			}
			t.want["task_id"], t.want["queue"], t.want["pid"] = id, "default", int64(os.Getpid())
			if _, err := r.add("worker/"+id, wire.WorkerInfo, []byte(data), t.want); err != nil {
				return err
			}
		}
	}
	server.Stop()
	busy["status"] = "stopped"
	if err := r.addServer("server/stopped", busy); err != nil {
		return err
	}
	closed := make(chan struct{})
	go func() {
		server.Shutdown()
		close(closed)
	}()
	shutdown = func() { <-closed }
	busy["status"] = "closed"
	return r.addServer("server/closed", busy)
}

// addServer waits until the only live server reports the wanted fields.
func (r *recorder) addServer(name string, want wire.Fields) error {
	want["pid"] = int64(os.Getpid())
	var data []byte
	err := wait(name, func() (bool, error) {
		found, err := liveValue(r, "asynq:servers:", func(key string) ([]byte, error) {
			return r.rdb.Get(ctx, key).Bytes()
		})
		if err != nil {
			return false, nil // Not written yet.
		}
		data = found
		fields, err := wire.ServerInfo.Decode(data)
		return fields["status"] == want["status"] &&
			fields["active_worker_count"] == want["active_worker_count"], err
	})
	if err != nil {
		return err
	}
	_, err = r.add(name, wire.ServerInfo, data, want)
	return err
}

// liveValue reads the one key with a prefix.
func liveValue[T any](r *recorder, prefix string, read func(key string) (T, error)) (T, error) {
	var none T
	keys, err := r.rdb.Keys(ctx, prefix+"*").Result()
	if err != nil {
		return none, err
	}
	if len(keys) != 1 {
		return none, errors.New(fmt.Sprint("want one key, got ", strings.Join(keys, " ")))
	}
	return read(keys[0])
}
