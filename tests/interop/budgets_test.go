package interop

import (
	"context"
	"errors"
	"slices"
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

// Go has each task first, fails it, and counts that as a retry. From then on
// ours run it exactly as often as its budget allows, whatever its end is.
func TestEachBudgetIsSpentExactlyAfterAnAttemptAtGo(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	gone := asynq.TaskState(0)
	cases := []struct {
		id, typ string
		budget  []string
		runs    int
		ends    asynq.TaskState
	}{
		{"snoozes", "putback", []string{"--max-snoozes", "2"}, 3, asynq.TaskStateArchived},
		{"one-snooze", "putback", []string{"--max-snoozes", "0"}, 1, asynq.TaskStateArchived},
		{"retries", "fail", []string{"--max-retry", "2"}, 2, asynq.TaskStateArchived},
		{"panics", "panic", []string{"--max-retry", "2"}, 2, asynq.TaskStateArchived},
		{"time", "fail", []string{"--give-up-after", "1s", "--backoff", "2s"}, 2, asynq.TaskStateArchived},
		{"skipped", "skip", []string{"--max-snoozes", "9", "--give-up-after", "1h"}, 1, asynq.TaskStateArchived},
		{"revoked", "revoke", []string{"--max-snoozes", "0"}, 1, gone},
		{"done", "ok", []string{"--max-snoozes", "0", "--give-up-after", "1s"}, 1, gone},
	}
	for _, c := range cases {
		args := []string{"enqueue", c.typ, "--payload", "boom", "--task-id", c.id}
		f.queuectl(append(args, c.budget...)...)
	}
	config := goConfig()
	config.RetryDelayFunc = func(int, error, *asynq.Task) time.Duration { return time.Hour }
	server := asynq.NewServer(f.opt, config)
	fail := func(context.Context, *asynq.Task) error { return errors.New("at Go") }
	if err := server.Start(asynq.HandlerFunc(fail)); err != nil {
		t.Fatal(err)
	}
	for _, c := range cases {
		f.waitState("default", c.id, asynq.TaskStateRetry)
	}
	server.Shutdown()
	if _, err := f.inspector.RunAllRetryTasks("default"); err != nil {
		t.Fatal(err)
	}
	w := f.startRustWorker(4, []string{"default=1"}, "--retry-delay-secs", "1")
	for _, c := range cases {
		if c.ends == gone {
			f.waitGone("default", c.id)
		} else {
			f.waitState("default", c.id, c.ends)
		}
		others := func(id string) bool { return id != c.id }
		if got := len(slices.DeleteFunc(w.starts(), others)); got != c.runs {
			t.Errorf("%s: a worker of ours ran it %d times, want %d", c.id, got, c.runs)
		}
	}
}
