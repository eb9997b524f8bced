package interop

import (
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
)

// assertFailedNow checks error text, time and count of a task that has just
// failed in Rust.
func assertFailedNow(f *fixture, got *asynq.TaskInfo, lastErr string, retried int) {
	f.t.Helper()
	if got.LastErr != lastErr {
		f.t.Errorf("%s: Go reads error %q, want %q", got.ID, got.LastErr, lastErr)
	}
	if got.Retried != retried {
		f.t.Errorf("%s: Go reads %d retries, want %d", got.ID, got.Retried, retried)
	}
	if !near(got.LastFailedAt, time.Now(), 10*time.Second) {
		f.t.Errorf("%s: Go reads failure at %v", got.ID, got.LastFailedAt)
	}
}

// assertDelay checks the time to the next attempt, in seconds.
func assertDelay(f *fixture, got *asynq.TaskInfo, least, most int) {
	f.t.Helper()
	// The two times are cut to seconds at slightly different moments.
	delay := int(got.NextProcessAt.Sub(got.LastFailedAt) / time.Second)
	if delay < least-1 || delay > most+1 {
		f.t.Errorf("%s: the next attempt is in %d s, want %d to %d", got.ID, delay, least, most)
	}
}

func TestRustRetriesAsGoDoes(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	headers := map[string]string{"trace": "abc"}
	task := asynq.NewTaskWithHeaders("fail", []byte("ошибка: boom"), headers)
	f.enqueueTask(task, asynq.TaskID("x"), asynq.MaxRetry(2))
	w := f.startRustWorker(1, []string{"default=1"})

	got := f.waitState("default", "x", asynq.TaskStateRetry)
	assertFailedNow(f, got, "ошибка: boom", 1)
	assertDelay(f, got, 15, 44)
	if got.MaxRetry != 2 || string(got.Payload) != "ошибка: boom" || got.Headers["trace"] != "abc" {
		t.Errorf("after a retry Go reads %+v", got)
	}
	f.assertCount("default", "processed", "1")
	f.assertCount("default", "failed", "1")

	if err := f.inspector.RunTask("default", "x"); err != nil {
		t.Fatal(err)
	}
	if second := w.waitAttempt("x", 1); second.Headers["trace"] != "abc" || second.MaxRetry != 2 {
		t.Errorf("the second attempt sees %+v", second)
	}
	f.eventually("the second failure is recorded", func() bool { return f.info("default", "x").Retried == 2 })
	got = f.waitState("default", "x", asynq.TaskStateRetry)
	assertDelay(f, got, 16, 74)

	if err := f.inspector.RunTask("default", "x"); err != nil {
		t.Fatal(err)
	}
	w.waitAttempt("x", 2)
	got = f.waitState("default", "x", asynq.TaskStateArchived)
	assertFailedNow(f, got, "ошибка: boom", 2)
	f.assertCount("default", "processed", "3")
	f.assertCount("default", "failed", "3")
}

func TestRustEndsFailuresAsGoDoes(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	w := f.startRustWorker(4, []string{"default=1"})

	f.enqueue("fail", []byte("last"), asynq.TaskID("exhausted"), asynq.MaxRetry(0))
	assertFailedNow(f, f.waitState("default", "exhausted", asynq.TaskStateArchived), "last", 0)

	f.enqueue("skip", []byte("bad input"), asynq.TaskID("skipped"))
	got := f.waitState("default", "skipped", asynq.TaskStateArchived)
	if !strings.Contains(got.LastErr, "bad input") {
		t.Errorf("skipped: Go reads error %q", got.LastErr)
	}
	assertFailedNow(f, got, got.LastErr, 0)

	f.enqueue("hang", nil, asynq.TaskID("timed-out"), asynq.Timeout(time.Second))
	assertFailedNow(f, f.waitState("default", "timed-out", asynq.TaskStateRetry), "context deadline exceeded", 1)

	f.enqueue("panic", []byte("cause"), asynq.TaskID("panicked"))
	got = f.waitState("default", "panicked", asynq.TaskStateRetry)
	if !strings.Contains(got.LastErr, "panic") || !strings.Contains(got.LastErr, "cause") {
		t.Errorf("panicked: Go reads error %q", got.LastErr)
	}
	assertFailedNow(f, got, got.LastErr, 1)
	f.assertCount("default", "processed", "4")
	f.assertCount("default", "failed", "4")

	f.enqueue("putback", []byte("not now"), asynq.TaskID("put-back"))
	assertFailedNow(f, f.waitState("default", "put-back", asynq.TaskStateRetry), "not now", 0)
	f.assertCount("default", "processed", "4")

	// Deleted although it would be kept after a success.
	f.enqueue("revoke", []byte("p"), asynq.TaskID("revoked"), asynq.Retention(time.Hour), asynq.Unique(time.Hour))
	w.waitStart("revoked")
	f.waitGone("default", "revoked")
	if f.exists(lockKey("default", "revoke", "p")) {
		t.Error("revoked: the lock is still there")
	}
	w.stop()
	f.assertCount("default", "processed", "5")
	f.assertCount("default", "failed", "4")
}

func TestGoRetriesWhatFailedInRustAndBack(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	w := f.startRustWorker(1, []string{"default=1"}, "--retry-delay-secs", "1")
	f.rustEnqueue("fail", "--task-id", "x", "--payload", "in Rust", "--header", "a=1")
	w.waitStart("x")
	f.waitState("default", "x", asynq.TaskStateRetry)
	w.stop()

	// Go forwards what is due, and runs the second or a later attempt.
	s := f.startGoServer(func(c *asynq.Config) {
		c.RetryDelayFunc = func(int, error, *asynq.Task) time.Duration { return time.Second }
	}, "default")
	run := s.waitRun("x")
	if run.retried < 1 || run.headers["a"] != "1" {
		t.Errorf("the Go handler saw %+v", run)
	}
	f.eventually("Go recorded its failure", func() bool { return f.info("default", "x").Retried > run.retried })
	s.Shutdown()

	after := f.info("default", "x").Retried
	w = f.startRustWorker(1, []string{"default=1"})
	if again := w.waitAttempt("x", after); again.Headers["a"] != "1" {
		t.Errorf("the Rust handler saw %+v", again)
	}
}
