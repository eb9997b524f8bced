package interop

import (
	"context"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"queue.test/interop/internal/redistest"
)

var ctx = context.Background()

// fixture is a private Redis and Go's ways into it.
type fixture struct {
	t         *testing.T
	url       string
	socket    string
	opt       asynq.RedisClientOpt
	rdb       *redis.Client
	client    *asynq.Client
	inspector *asynq.Inspector
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	server, err := redistest.Start()
	if err != nil {
		t.Fatal(err)
	}
	// Cleanups run last in, first out: whatever a test starts later has
	// ended by the time Redis does.
	t.Cleanup(server.Stop)
	f := &fixture{
		t:         t,
		url:       server.URL(),
		socket:    server.Socket,
		opt:       server.Asynq(),
		rdb:       server.Client(),
		client:    asynq.NewClient(server.Asynq()),
		inspector: asynq.NewInspector(server.Asynq()),
	}
	t.Cleanup(func() {
		f.inspector.Close()
		f.client.Close()
		f.rdb.Close()
	})
	return f
}

// in is the same fixture, reporting to a subtest.
func (f *fixture) in(t *testing.T) *fixture {
	other := *f
	other.t = t
	return &other
}

// enqueue puts a task in with the Go client.
func (f *fixture) enqueue(typ string, payload []byte, opts ...asynq.Option) *asynq.TaskInfo {
	f.t.Helper()
	return f.enqueueTask(asynq.NewTask(typ, payload), opts...)
}

func (f *fixture) enqueueTask(task *asynq.Task, opts ...asynq.Option) *asynq.TaskInfo {
	f.t.Helper()
	info, err := f.client.Enqueue(task, opts...)
	if err != nil {
		f.t.Fatalf("Go enqueues %s: %v", task.Type(), err)
	}
	return info
}

// enqueueID puts a task without payload in with the Go client.
func (f *fixture) enqueueID(typ, id string, opts ...asynq.Option) {
	f.t.Helper()
	f.enqueue(typ, nil, append(opts, asynq.TaskID(id))...)
}

// info reads a task with the Go inspector. The task must be there.
func (f *fixture) info(queue, id string) *asynq.TaskInfo {
	f.t.Helper()
	info, err := f.inspector.GetTaskInfo(queue, id)
	if err != nil {
		f.t.Fatalf("Go reads task %s: %v", id, err)
	}
	return info
}

// waitState waits until a task is in a state, and reads it.
func (f *fixture) waitState(queue, id string, state asynq.TaskState) *asynq.TaskInfo {
	f.t.Helper()
	var found *asynq.TaskInfo
	f.eventually("task "+id+" is "+state.String(), func() bool {
		info, err := f.inspector.GetTaskInfo(queue, id)
		if err != nil {
			return false
		}
		found = info
		return info.State == state
	})
	return found
}

// waitGone waits until a task has left Redis.
func (f *fixture) waitGone(queue, id string) {
	f.t.Helper()
	f.eventually("task "+id+" is gone", func() bool {
		return !f.exists(taskKey(queue, id))
	})
}

func (f *fixture) exists(key string) bool {
	f.t.Helper()
	n, err := f.rdb.Exists(ctx, key).Result()
	if err != nil {
		f.t.Fatal(err)
	}
	return n == 1
}

// get reads a string key, "" if it is not there.
func (f *fixture) get(key string) string {
	f.t.Helper()
	value, err := f.rdb.Get(ctx, key).Result()
	if err != nil && err != redis.Nil {
		f.t.Fatal(err)
	}
	return value
}

const patience = 60 * time.Second

// eventually polls until the condition holds.
func (f *fixture) eventually(what string, condition func() bool) {
	f.t.Helper()
	f.eventuallyWithin(patience, what, condition)
}

func (f *fixture) eventuallyWithin(limit time.Duration, what string, condition func() bool) {
	f.t.Helper()
	deadline := time.Now().Add(limit)
	for !condition() {
		if time.Now().After(deadline) {
			f.t.Fatalf("gave up after %v waiting until %s", limit, what)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// never fails if the condition comes to hold while watched.
func (f *fixture) never(watch time.Duration, what string, condition func() bool) {
	f.t.Helper()
	for end := time.Now().Add(watch); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if condition() {
			f.t.Fatal(what)
		}
	}
}

func queueKey(queue, rest string) string { return "asynq:{" + queue + "}:" + rest }

func taskKey(queue, id string) string { return queueKey(queue, "t:"+id) }
