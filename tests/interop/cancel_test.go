package interop

import (
	"testing"

	"github.com/hibiken/asynq"
)

func TestGoCancelsARustHandler(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	w := f.startRustWorker(3, []string{"default=1"})
	f.rustEnqueue("hang", "--task-id", "first")
	f.enqueueID("hang", "second", asynq.MaxRetry(0))
	f.enqueueID("hang", "other")
	for _, id := range []string{"first", "second", "other"} {
		w.waitStart(id)
	}
	// Fire and forget: a signal may come before the subscriber listens.
	cancel := func(id string, state asynq.TaskState) *asynq.TaskInfo {
		f.eventually("Go's cancelation of "+id+" reaches Rust", func() bool {
			if err := f.inspector.CancelProcessing(id); err != nil {
				t.Fatal(err)
			}
			return f.info("default", id).State == state
		})
		return f.info("default", id)
	}
	got := cancel("first", asynq.TaskStateRetry)
	assertFailedNow(f, got, "context canceled", 1)
	assertDelay(f, got, 15, 44)
	assertFailedNow(f, cancel("second", asynq.TaskStateArchived), "context canceled", 0)
	if got := f.info("default", "other").State; got != asynq.TaskStateActive {
		t.Errorf("a task nobody cancelled is %v", got)
	}
	f.assertCount("default", "processed", "2")
	f.assertCount("default", "failed", "2")
}
