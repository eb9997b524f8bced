package interop

import (
	"errors"
	"testing"
	"time"

	"github.com/hibiken/asynq"
)

// publish lets queuectl publish a task under the key "k"; it tells the
// outcome.
func (f *fixture) publish(outcome, typ, payload string, args ...string) {
	f.t.Helper()
	args = append([]string{"enqueue", typ, "--key", "k", "--payload", payload}, args...)
	if got, want := f.queuectl(args...), "k "+outcome+"\n"; got != want {
		f.t.Errorf("queuectl %v: %q, want %q", args, got, want)
	}
}

// assertTaken checks that Go's client may not enqueue with the key.
func (f *fixture) assertTaken(state asynq.TaskState) {
	f.t.Helper()
	f.waitState("default", "k", state)
	_, err := f.client.Enqueue(asynq.NewTask("other", nil), asynq.TaskID("k"))
	if !errors.Is(err, asynq.ErrTaskIDConflict) {
		f.t.Errorf("%v: Go enqueues with the key: %v", state, err)
	}
}

func TestAKeyIsTakenForGoInEveryState(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.publish("stored", "sleep", "1500", "--publish", "keep", "--in", "1h", "--retention", "1h")
	f.assertTaken(asynq.TaskStateScheduled)
	if err := f.inspector.RunTask("default", "k"); err != nil {
		t.Fatal(err)
	}
	f.assertTaken(asynq.TaskStatePending)
	f.startGoServer(nil, "default")
	f.assertTaken(asynq.TaskStateActive)
	// A task that a worker has stays as it is.
	f.refused(4, "enqueue", "sleep", "--key", "k", "--publish", "replace")
	f.assertTaken(asynq.TaskStateCompleted)
	f.publish("restarted", "fail", "boom", "--publish", "restart")
	f.assertTaken(asynq.TaskStateRetry)
	if err := f.inspector.ArchiveTask("default", "k"); err != nil {
		t.Fatal(err)
	}
	f.assertTaken(asynq.TaskStateArchived)
	if err := f.inspector.DeleteTask("default", "k"); err != nil {
		t.Fatal(err)
	}
	f.enqueue("t", nil, asynq.TaskID("k"), asynq.ProcessIn(time.Hour))
	f.publish("kept", "other", "p", "--publish", "keep")
}

func TestGoReadsAndWorksWhatIsReplacedAndBegunAnew(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	// The lock and the group are Go's, and stay.
	f.enqueue("t", []byte("of Go"), asynq.TaskID("k"), asynq.Unique(time.Hour), asynq.ProcessIn(time.Hour), asynq.Group("g"))
	f.publish("replaced", "fail", "second", "--publish", "replace,reschedule", "--max-retry", "3", "--timeout", "7s", "--header", "h=v", "--in", "2h")
	got := f.info("default", "k")
	if got.Type != "fail" || string(got.Payload) != "second" || got.MaxRetry != 3 || got.Timeout != 7*time.Second ||
		got.Headers["h"] != "v" || got.Group != "g" || got.State != asynq.TaskStateScheduled ||
		!near(got.NextProcessAt, time.Now().Add(2*time.Hour), 10*time.Second) {
		t.Errorf("Go reads %+v", got)
	}
	lock := lockKey("default", "t", "of Go")
	f.assertLock(lock, "k", 2*time.Hour)

	server := f.startGoServer(nil, "default")
	if err := f.inspector.RunTask("default", "k"); err != nil {
		t.Fatal(err)
	}
	if run := server.waitRun("k"); string(run.payload) != "second" || run.headers["h"] != "v" {
		t.Errorf("Go runs %+v", run)
	}
	f.waitState("default", "k", asynq.TaskStateRetry)

	// What its attempts have come to stays, as do lock and group.
	f.publish("replaced", "ok", "third", "--publish", "replace", "--retention", "1h")
	got = f.info("default", "k")
	if got.Retried != 1 || got.LastErr != "second" || got.LastFailedAt.IsZero() || string(got.Payload) != "third" || got.Group != "g" {
		t.Errorf("Go reads %+v", got)
	}
	if err := f.inspector.RunTask("default", "k"); err != nil {
		t.Fatal(err)
	}
	f.waitState("default", "k", asynq.TaskStateCompleted)
	if f.exists(lock) {
		t.Error("Go did not release the lock")
	}

	f.publish("restarted", "ok", "fourth", "--publish", "restart")
	f.waitGone("default", "k")
	f.assertCount("default", "processed", "3")
	runs := server.runs
	if len(runs) != 3 || string(runs[2].payload) != "fourth" || runs[2].retried != 0 {
		t.Errorf("Go ran %+v", runs)
	}
}

func TestGoWorksADebouncedTaskOnceWithItsLastPayload(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	server := f.startGoServer(nil, "default")
	outcome := "stored"
	for _, payload := range []string{"1", "2", "3"} {
		f.publish(outcome, "ok", payload, "--debounce", "2s", "--max-wait", "1m")
		outcome = "replaced"
	}
	if run := server.waitRun("k"); string(run.payload) != "3" {
		t.Errorf("Go ran %+v", run)
	}
	f.waitGone("default", "k")
	if ids := server.ids(); len(ids) != 1 {
		t.Errorf("Go ran %v", ids)
	}
}

// Go knows nothing of twins: what follows waits for its fallback.
func TestGoWorksWhatFollowsAtItsFallback(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.publish("stored", "sleep", "3000", "--coalesce", "--timeout", "6s")
	server := f.startGoServer(nil, "default")
	f.waitState("default", "k", asynq.TaskStateActive)
	f.publish("follows", "ok", "last", "--coalesce", "--timeout", "6s")
	if got := f.waitState("default", "k~", asynq.TaskStateScheduled); string(got.Payload) != "last" {
		t.Errorf("Go reads %+v", got)
	}
	if run := server.waitRun("k~"); string(run.payload) != "last" {
		t.Errorf("Go ran %+v", run)
	}
	f.waitGone("default", "k~")
	if ids := server.ids(); len(ids) != 2 || ids[0] != "k" {
		t.Errorf("Go ran %v", ids)
	}
}
