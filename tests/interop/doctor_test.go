package interop

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
)

// everyState leaves tasks of Go's in all seven states, with locks, made by
// Go's clients, servers and inspector alone.
func (f *fixture) everyState() {
	f.t.Helper()
	hour := asynq.ProcessIn(time.Hour)
	server := f.startGoServer(nil, "default")
	f.enqueueID("hang", "active")
	f.enqueueID("ok", "completed", asynq.Retention(time.Hour))
	f.enqueue("fail", []byte("1"), asynq.TaskID("retry"), asynq.Unique(time.Hour))
	f.enqueue("fail", []byte("2"), asynq.TaskID("archived"), asynq.MaxRetry(0), asynq.Unique(time.Hour))
	f.enqueueID("ok", "done")
	server.waitRun("active")
	f.waitState("default", "completed", asynq.TaskStateCompleted)
	f.waitState("default", "retry", asynq.TaskStateRetry)
	f.waitState("default", "archived", asynq.TaskStateArchived)
	f.waitGone("default", "done")
	if err := f.inspector.PauseQueue("default"); err != nil {
		f.t.Fatal(err)
	}
	// What the server had asked for before the pause has come by now, for
	// pausing and taking are one after the other in Redis.
	f.enqueueID("ok", "pending")
	f.enqueue("ok", []byte("3"), asynq.TaskID("pending-unique"), asynq.Unique(time.Hour))
	f.enqueueID("ok", "scheduled", hour)
	f.enqueue("ok", []byte("4"), asynq.TaskID("scheduled-unique"), hour, asynq.Unique(time.Hour))
	f.enqueueID("ok", "grouped", asynq.Group("g:h"))
	f.enqueue("ok", []byte("5"), asynq.TaskID("grouped-unique"), asynq.Group("g:h"), asynq.Unique(time.Hour))
	f.enqueueID("ok", "grouped-later", asynq.Group("g:h"), hour)
	f.enqueueID("ok", "run", hour)
	if err := f.inspector.RunTask("default", "run"); err != nil {
		f.t.Fatal(err)
	}
	f.enqueueID("ok", "archived-by-hand", hour)
	if err := f.inspector.ArchiveTask("default", "archived-by-hand"); err != nil {
		f.t.Fatal(err)
	}
}

// dumps gives the bytes of every key that a running server leaves alone.
func (f *fixture) dumps() map[string]string {
	f.t.Helper()
	out := map[string]string{}
	keys, err := f.rdb.Keys(ctx, "*").Result()
	if err != nil {
		f.t.Fatal(err)
	}
	for _, key := range keys {
		if isOfServer(key) || strings.HasSuffix(key, ":lease") {
			continue
		}
		out[key] = f.rdb.Dump(ctx, key).Val()
	}
	return out
}

func TestDoctorFindsNothingInWhatGoMade(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.everyState()
	f.queuectl("doctor")
	// It does not even want to mend anything.
	before := f.dumps()
	f.queuectl("doctor", "--fix")
	if after := f.dumps(); !maps.Equal(after, before) {
		t.Errorf("doctor --fix has changed\n%q\ninto\n%q", before, after)
	}
}

func TestGoWorksTasksThatTheDoctorHasMended(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for _, id := range []string{"pending", "twice", "wrong", "unlisted"} {
		f.enqueueID("ok", id)
	}
	f.enqueueID("ok", "scheduled", asynq.ProcessIn(time.Hour))
	f.enqueueID("ok", "grouped", asynq.Group("g"))
	f.enqueueID("ok", "hidden", asynq.ProcessIn(time.Hour))
	for _, damage := range [][]any{
		{"LREM", queueKey("default", "pending"), 0, "pending"},
		{"ZADD", queueKey("default", "retry"), 5, "twice"},
		{"LPUSH", queueKey("default", "pending"), "ghost"},
		{"HSET", taskKey("default", "wrong"), "state", "retry"},
		{"DEL", queueKey("default", "scheduled")},
		{"SET", queueKey("default", "scheduled"), "stray"},
		{"SREM", queueKey("default", "groups"), "g"},
		{"LREM", queueKey("default", "pending"), 0, "unlisted"},
		{"HSET", taskKey("default", "unlisted"), "state", "active"},
		{"LPUSH", queueKey("default", "active"), "unlisted"},
		{"SREM", "asynq:queues", "default"},
	} {
		if err := f.rdb.Do(ctx, damage...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	f.refused(1, "doctor")
	f.queuectl("doctor", "--fix", "--dump", t.TempDir()+"/dump.jsonl")
	f.queuectl("doctor")
	// The one that was active without a lease has one now; let it end.
	f.expireLease("unlisted")
	server, aggregator := f.startGoAggregator(0)
	for _, id := range []string{"pending", "twice", "wrong", "scheduled", "hidden"} {
		server.waitRun(id)
		f.waitGone("default", id)
	}
	f.eventually("Go aggregates the group", func() bool { return len(aggregator.aggregates("g")) == 1 })
	f.waitState("default", "unlisted", asynq.TaskStateRetry)
	if got := server.ids(); slices.Contains(got, "ghost") {
		t.Errorf("Go has worked %v", got)
	}
}
