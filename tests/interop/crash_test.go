package interop

import (
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
)

// expireLease makes a lease look as it does a minute after it ran out.
func (f *fixture) expireLease(id string) {
	f.t.Helper()
	lease := redis.Z{Score: float64(time.Now().Add(-time.Minute).Unix()), Member: id}
	if err := f.rdb.ZAddXX(ctx, queueKey("default", "lease"), lease).Err(); err != nil {
		f.t.Fatal(err)
	}
}

// assertLeased checks that a task is held the way a crash would leave it.
func (f *fixture) assertLeased(id string) {
	f.t.Helper()
	if got := f.info("default", id).State; got != asynq.TaskStateActive {
		f.t.Fatalf("task %s is %v", id, got)
	}
	score, err := f.rdb.ZScore(ctx, queueKey("default", "lease"), id).Result()
	if err != nil {
		f.t.Fatalf("task %s has no lease: %v", id, err)
	}
	left := int64(score) - time.Now().Unix()
	if left < 15 || left > 31 {
		f.t.Errorf("the lease of task %s has %d s left", id, left)
	}
}

// assertRecovered checks a task whose worker died.
func assertRecovered(f *fixture, id string, state asynq.TaskState, retried int) {
	f.t.Helper()
	got := f.waitState("default", id, state)
	if !strings.Contains(got.LastErr, "lease expired") || got.Retried != retried {
		f.t.Errorf("%s: Go reads error %q and %d retries", id, got.LastErr, got.Retried)
	}
	if !near(got.LastFailedAt, time.Now(), patience) {
		f.t.Errorf("%s: Go reads failure at %v", id, got.LastFailedAt)
	}
	if f.rdb.ZScore(ctx, queueKey("default", "lease"), id).Err() != redis.Nil {
		f.t.Errorf("%s: the lease is still there", id)
	}
}

func TestGoRecoversFromAKilledRustWorker(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	w := f.startRustWorker(3, []string{"default=1"})
	f.rustEnqueue("hang", "--task-id", "lost", "--header", "a=1")
	f.enqueueID("hang", "last-try", asynq.MaxRetry(0))
	f.enqueueID("hang", "leased")
	for _, id := range []string{"lost", "last-try", "leased"} {
		w.waitStart(id)
		f.assertLeased(id)
	}
	w.kill()
	f.expireLease("lost")
	f.expireLease("last-try")

	s := f.startGoServer(func(c *asynq.Config) {
		c.RetryDelayFunc = func(int, error, *asynq.Task) time.Duration { return time.Hour }
	}, "default")
	assertRecovered(f, "lost", asynq.TaskStateRetry, 1)
	assertRecovered(f, "last-try", asynq.TaskStateArchived, 0)
	if got := f.info("default", "lost").Headers["a"]; got != "1" {
		t.Errorf("header a is %q after recovery", got)
	}
	if got := f.info("default", "leased").State; got != asynq.TaskStateActive {
		t.Errorf("a task whose lease holds is %v", got)
	}
	if err := f.inspector.RunTask("default", "lost"); err != nil {
		t.Fatal(err)
	}
	if run := s.waitRun("lost"); run.retried != 1 {
		t.Errorf("the Go handler saw %+v", run)
	}
}

func TestRustRecoversFromAKilledGoServer(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	kill := f.startGoProcess()
	f.enqueueID("ok", "lost")
	f.enqueueID("ok", "last-try", asynq.MaxRetry(0))
	for _, id := range []string{"lost", "last-try"} {
		f.waitState("default", id, asynq.TaskStateActive)
		f.assertLeased(id)
	}
	kill()
	f.expireLease("lost")
	f.expireLease("last-try")

	// As it starts.
	w := f.startRustWorker(2, []string{"default=1"}, "--retry-delay-secs", "1")
	assertRecovered(f, "last-try", asynq.TaskStateArchived, 0)
	// Unlike Go, Rust spends no retry on a crash.
	if again := w.waitStart("lost"); again.Retried != 0 {
		t.Errorf("the Rust handler saw %+v", again)
	}
	f.waitGone("default", "lost")
}

func TestARunningRustWorkerRecoversFromAKilledGoServer(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	kill := f.startGoProcess()
	f.enqueueID("ok", "lost")
	f.waitState("default", "lost", asynq.TaskStateActive)
	w := f.startRustWorker(2, []string{"default=1", "other=1"}, "--retry-delay-secs", "3600")
	w.waitEnd(f.rustEnqueue("ok", "--queue", "other")) // The Go server would take it from default.
	if got := f.info("default", "lost").State; got != asynq.TaskStateActive {
		t.Fatalf("a task whose lease holds is %v", got)
	}
	kill()
	// Where it can be looked at: a paused queue is recovered and forwarded all the same.
	if err := f.inspector.PauseQueue("default"); err != nil {
		t.Fatal(err)
	}
	f.expireLease("lost")
	assertRecovered(f, "lost", asynq.TaskStatePending, 0)
	w.stop()
}

// What a recovery leaves differs on purpose: docs/differences.md.
func TestARecoveryByRustDiffersFromGosInTheRetryAndInWhatIsRememberedOnly(t *testing.T) {
	t.Parallel()
	recovered := func(recover func(*fixture)) keyspace {
		f := newFixture(t)
		kill := f.startGoProcess()
		f.enqueueID("ok", "lost")
		f.waitState("default", "lost", asynq.TaskStateActive)
		kill()
		if err := f.inspector.PauseQueue("default"); err != nil {
			t.Fatal(err)
		}
		f.expireLease("lost")
		recover(f)
		f.waitState("default", "lost", asynq.TaskStatePending)
		return f.dump()
	}
	inGo := recovered(func(f *fixture) {
		f.startGoServer(func(c *asynq.Config) {
			c.RetryDelayFunc = func(int, error, *asynq.Task) time.Duration { return 0 }
		}, "default")
	})
	inRust := recovered(func(f *fixture) { f.startRustWorker(1, []string{"default=1"}) })
	found := differences(inGo, inRust)
	expected := []string{"retried", "x_a0", "x_crashes", "x_n"}
	matches := len(found) == len(expected)
	for i := 0; matches && i < len(found); i++ {
		matches = strings.Contains(found[i], expected[i])
	}
	if !matches {
		t.Errorf("the differences are\n  %s", strings.Join(found, "\n  "))
	}
}
