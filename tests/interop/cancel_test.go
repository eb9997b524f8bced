package interop

import (
	"slices"
	"strings"
	"testing"
	"time"

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

// A Go worker hears the signal and lets the task be retried; whoever leads
// archives it then, and nobody runs it again.
func TestATaskThatGoWorksOnIsCanceledForGood(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.startRustWorker(1, []string{"other=1"})
	server := f.startGoServer(func(c *asynq.Config) {
		c.RetryDelayFunc = func(int, error, *asynq.Task) time.Duration { return time.Hour }
	}, "default")
	f.enqueueID("hang", "x")
	server.waitRun("x")
	told := f.queuectl("task", "cancel", "x", "--json")
	if !strings.Contains(told, `"outcome":"told"`) && !strings.Contains(told, `"outcome":"recorded"`) {
		t.Errorf("queuectl answers %s", told)
	}
	f.waitState("default", "x", asynq.TaskStateArchived)
	f.enqueueID("ok", "y")
	server.waitRun("y")
	if got := server.ids(); !slices.Equal(got, []string{"x", "y"}) {
		t.Errorf("Go ran %v", got)
	}
	f.eventually("the record goes", func() bool { return !f.exists("asynq:x:cancels") })
}
