package interop

import (
	"slices"
	"testing"

	"github.com/hibiken/asynq"
)

func TestRustShutdownHandsRunningTasksToGo(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	w := f.startRustWorker(1, []string{"default=1"}, "--shutdown-timeout-secs", "1")
	f.rustEnqueue("hang", "--task-id", "running", "--header", "a=1")
	w.waitStart("running")
	f.enqueueID("ok", "next")
	f.enqueueID("ok", "last")
	w.stop()

	got := f.info("default", "running")
	if got.State != asynq.TaskStatePending || got.Retried != 0 || got.LastErr != "" || !got.LastFailedAt.IsZero() {
		t.Errorf("after the shutdown Go reads %+v", got)
	}
	pending := f.rdb.LRange(ctx, queueKey("default", "pending"), 0, -1).Val()
	if want := []string{"last", "next", "running"}; !slices.Equal(pending, want) {
		t.Errorf("pending is %q, want %q", pending, want)
	}
	for _, key := range []string{"active", "lease", "retry", "processed", "failed"} {
		if f.exists(queueKey("default", key)) {
			t.Errorf("%s is there", queueKey("default", key))
		}
	}

	s := f.startGoServer(func(c *asynq.Config) { c.Concurrency = 3 }, "default")
	if run := s.waitRun("running"); run.retried != 0 || run.headers["a"] != "1" {
		t.Errorf("the Go handler saw %+v", run)
	}
	s.waitRun("last")
}

func TestRustShutdownWaitsForHandlersThatEndInTime(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	w := f.startRustWorker(1, []string{"default=1"})
	f.enqueue("sleep", []byte("1500"), asynq.TaskID("running"))
	w.waitStart("running")
	f.enqueueID("ok", "next")
	w.stop()
	w.waitEnd("running")
	if f.exists(taskKey("default", "running")) {
		t.Error("the finished task is still there")
	}
	if got := f.info("default", "next").State; got != asynq.TaskStatePending {
		t.Errorf("the next task is %v", got)
	}
	f.assertCount("default", "processed", "1")
}
