package interop

import (
	"strconv"
	"testing"
	"time"

	"github.com/hibiken/asynq"
)

// A budget is in the headers, which Go keeps when it retries a task; it does
// not go by them.
func TestBudgetsOutliveARetryInGo(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.queuectl("enqueue", "fail", "--payload", "boom", "--task-id", "x",
		"--max-snoozes", "3", "--give-up-after", "1h", "--backoff", "100s")
	server := f.startGoServer(nil, "default")
	got := f.waitState("default", "x", asynq.TaskStateRetry)
	server.Shutdown()
	if got.Retried != 1 || got.Headers["x-max-snoozes"] != "3" || got.Headers["x-backoff"] != "1m40s" {
		t.Errorf("after a retry Go reads %d retries, headers %v", got.Retried, got.Headers)
	}
	assertDelay(f, got, 15, 44)

	w := f.startRustWorker(1, []string{"default=1"})
	if err := f.inspector.RunTask("default", "x"); err != nil {
		t.Fatal(err)
	}
	w.waitAttempt("x", 1)
	f.eventually("the second failure is recorded", func() bool { return f.info("default", "x").Retried == 2 })
	got = f.waitState("default", "x", asynq.TaskStateRetry)
	assertDelay(f, got, 100, 100)
	// Go has not said when the task failed first: its time counts from the first failure at a server of ours.
	if first, here := got.Headers["x-first-failed"], got.LastFailedAt.Unix(); first != strconv.FormatInt(here, 10) {
		t.Errorf("it failed first at %q, and at a server of ours at %d", first, here)
	}
}

// Go's clients put anything into a header.
func TestABudgetOfGosThatCannotBeReadCountsForNothing(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	headers := map[string]string{"x-max-crashes": "few", "x-backoff": "fast", "x-give-up-after": "soon"}
	f.enqueueTask(asynq.NewTaskWithHeaders("fail", []byte("boom"), headers), asynq.TaskID("x"))
	f.enqueueTask(asynq.NewTaskWithHeaders("fail", []byte("boom"), map[string]string{"x-backoff": "2m"}), asynq.TaskID("y"))
	f.startRustWorker(1, []string{"default=1"})
	assertDelay(f, f.waitState("default", "x", asynq.TaskStateRetry), 15, 44)
	got := f.waitState("default", "y", asynq.TaskStateRetry)
	assertDelay(f, got, 120, 120)
	if !near(got.LastFailedAt, time.Now(), 10*time.Second) {
		t.Errorf("Go reads failure at %v", got.LastFailedAt)
	}
}
