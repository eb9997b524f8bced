package interop

import (
	"crypto/md5"
	"encoding/hex"
	"errors"
	"testing"
	"time"

	"github.com/hibiken/asynq"
)

// lockKey is the uniqueness lock of a task with a payload.
func lockKey(queue, typ, payload string) string {
	sum := md5.Sum([]byte(payload))
	return queueKey(queue, "unique:"+typ+":"+hex.EncodeToString(sum[:]))
}

func (f *fixture) assertLock(key, holder string, ttl time.Duration) {
	f.t.Helper()
	if got := f.get(key); got != holder {
		f.t.Errorf("lock %s is held by %q, want %q", key, got, holder)
	}
	left, err := f.rdb.TTL(ctx, key).Result()
	if err != nil {
		f.t.Fatal(err)
	}
	if left > ttl || left < ttl-10*time.Second {
		f.t.Errorf("lock %s has %v left, want %v", key, left, ttl)
	}
}

// mustRefuse lets Rust enqueue a task that may not be enqueued.
func (f *fixture) mustRefuse(why, typ string, args ...string) {
	f.t.Helper()
	id, refused := f.tryRustEnqueue(typ, args...)
	switch {
	case refused == nil:
		f.t.Errorf("%s: Rust enqueued task %s", why, id)
	case refused.stderr == "":
		f.t.Errorf("%s: Rust refuses without a reason", why)
	case id != "":
		f.t.Errorf("%s: Rust refuses and prints %q", why, id)
	}
}

func TestUniqueLockTakenByRustHoldsForGo(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	id := f.rustEnqueue("ok", "--payload", "p", "--unique", "10m")
	key := lockKey("default", "ok", "p")
	f.assertLock(key, id, 10*time.Minute)
	if got := f.rdb.HGet(ctx, taskKey("default", id), "unique_key").Val(); got != key {
		t.Errorf("hash field unique_key is %q, want %q", got, key)
	}

	_, err := f.client.Enqueue(asynq.NewTask("ok", []byte("p")), asynq.Unique(time.Minute))
	if !errors.Is(err, asynq.ErrDuplicateTask) {
		t.Errorf("Go enqueues a second one: %v", err)
	}
	f.mustRefuse("second one from Rust", "ok", "--payload", "p", "--unique", "1m")
	f.assertLock(key, id, 10*time.Minute)

	f.startGoServer(nil, "default")
	f.waitGone("default", id)
	if f.exists(key) {
		t.Error("Go's success does not release Rust's lock")
	}
	f.enqueue("ok", []byte("p"), asynq.Unique(time.Minute))
}

func TestUniqueLockTakenByGoHoldsForRust(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	id := f.enqueue("ok", []byte("p"), asynq.Unique(10*time.Minute)).ID
	f.mustRefuse("second one from Rust", "ok", "--payload", "p", "--unique", "1m")
	key := lockKey("default", "ok", "p")
	f.assertLock(key, id, 10*time.Minute)

	w := f.startRustWorker(1, []string{"default=1"})
	w.waitEnd(id)
	f.waitGone("default", id)
	if f.exists(key) {
		t.Error("Rust's success does not release Go's lock")
	}
	f.rustEnqueue("ok", "--payload", "p", "--unique", "1m")
}

func TestUniqueLockIsReleasedWhenRustCompletes(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	id := f.enqueue("ok", []byte("p"), asynq.Unique(10*time.Minute), asynq.Retention(time.Hour)).ID
	f.startRustWorker(1, []string{"default=1"})
	f.waitState("default", id, asynq.TaskStateCompleted)
	if f.exists(lockKey("default", "ok", "p")) {
		t.Error("the lock is still there")
	}
}

func TestUniqueLockSurvivesAFailureInRust(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	id := f.enqueue("fail", []byte("p"), asynq.Unique(10*time.Minute)).ID
	f.startRustWorker(1, []string{"default=1"})
	f.waitState("default", id, asynq.TaskStateRetry)
	if got := f.get(lockKey("default", "fail", "p")); got != id {
		t.Errorf("the lock is held by %q, want %q", got, id)
	}
}

func TestUniqueLockOfAScheduledTaskCoversTheWait(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	id := f.rustEnqueue("ok", "--payload", "p", "--unique", "10m", "--in", "1h")
	// Rust rounds the time a task is due up to a whole second.
	f.assertLock(lockKey("default", "ok", "p"), id, 70*time.Minute+time.Second)
}

// No payload and an empty payload are two different locks.
func TestUniqueLockWithoutPayload(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	absent := f.rustEnqueue("ok", "--unique", "10m")
	f.assertLock("asynq:{default}:unique:ok:", absent, 10*time.Minute)
	empty := f.rustEnqueue("ok", "--payload=", "--unique", "10m")
	f.assertLock(lockKey("default", "ok", ""), empty, 10*time.Minute)
	for _, payload := range [][]byte{nil, {}} {
		_, err := f.client.Enqueue(asynq.NewTask("ok", payload), asynq.Unique(time.Minute))
		if !errors.Is(err, asynq.ErrDuplicateTask) {
			t.Errorf("Go enqueues payload %#v again: %v", payload, err)
		}
	}
}

func TestDeletingARustTaskReleasesItsLock(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	id := f.rustEnqueue("ok", "--payload", "p", "--unique", "10m")
	if err := f.inspector.DeleteTask("default", id); err != nil {
		t.Fatal(err)
	}
	if f.exists(lockKey("default", "ok", "p")) {
		t.Error("the lock is still there")
	}
}

func TestTaskIDConflictsBothWays(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.rustEnqueue("ok", "--task-id", "from-rust", "--payload", "first")
	_, err := f.client.Enqueue(asynq.NewTask("ok", []byte("second")), asynq.TaskID("from-rust"))
	if !errors.Is(err, asynq.ErrTaskIDConflict) {
		t.Errorf("Go enqueues the id again: %v", err)
	}
	f.enqueue("ok", []byte("first"), asynq.TaskID("from-go"))
	f.mustRefuse("an id that Go used", "ok", "--task-id", "from-go", "--payload", "second")
	f.mustRefuse("later, an id that Go used", "ok", "--task-id", "from-go", "--in", "1h")
	f.mustRefuse("in a group, an id that Go used", "ok", "--task-id", "from-go", "--group", "g")
	// Ids are per queue.
	f.rustEnqueue("ok", "--task-id", "from-go", "--queue", "other")
	for _, id := range []string{"from-rust", "from-go"} {
		if got := f.info("default", id); string(got.Payload) != "first" || got.State != asynq.TaskStatePending {
			t.Errorf("task %s is now %+v", id, got)
		}
	}
}

// Go leaves the lock behind here; Rust need not.
func TestTaskIDConflictInRustLeavesNoLock(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.enqueue("ok", []byte("first"), asynq.TaskID("taken"))
	f.mustRefuse("an id that Go used", "ok", "--task-id", "taken", "--payload", "p", "--unique", "10m")
	if key := lockKey("default", "ok", "p"); f.exists(key) {
		t.Errorf("%s is left, held by %q", key, f.get(key))
	}
}

func TestALockUntilStartIsFreeForGoWhileRustWorks(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.queuectl("enqueue", "sleep", "--payload", "3000", "--unique", "1h", "--unique-until", "start", "--task-id", "a")
	again := func(id string) error {
		_, err := f.client.Enqueue(asynq.NewTask("sleep", []byte("3000")), asynq.Unique(time.Hour), asynq.TaskID(id))
		return err
	}
	if err := again("b"); !errors.Is(err, asynq.ErrDuplicateTask) {
		t.Errorf("while it waits, Go is told %v", err)
	}
	w := f.startRustWorker(1, []string{"default=1"})
	w.waitStart("a")
	lock := lockKey("default", "sleep", "3000")
	f.eventually("the lock is free", func() bool { return !f.exists(lock) })
	if err := again("c"); err != nil {
		t.Errorf("while it runs, Go is told %v", err)
	}
	// The end of the first leaves the lock of the second alone.
	f.waitGone("default", "a")
	f.assertLock(lock, "c", time.Hour)
	f.waitGone("default", "c")
	if f.exists(lock) {
		t.Error("the lock of the second is still there")
	}
}

// Go knows only asynq's way: see docs/options.md.
func TestGoKeepsALockUntilFinishWhenItArchives(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.queuectl("enqueue", "skip", "--payload", "x", "--unique", "1h", "--unique-until", "finish", "--task-id", "a")
	f.startGoServer(nil, "default")
	f.waitState("default", "a", asynq.TaskStateArchived)
	f.assertLock(lockKey("default", "skip", "x"), "a", time.Hour)

	f.queuectl("enqueue", "skip", "--payload", "y", "--unique", "1h", "--unique-until", "finish", "--task-id", "b", "--queue", "rust")
	f.startRustWorker(1, []string{"rust=1"})
	f.waitState("rust", "b", asynq.TaskStateArchived)
	if f.exists(lockKey("rust", "skip", "y")) {
		t.Error("Rust did not release the lock")
	}
}

// A window is nobody's to release: neither Go's success nor a deletion by its Inspector ends it.
func TestAWindowOutlastsWhatGoDoesWithItsTask(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	lock := lockKey("default", "echo", "w")
	enqueue := func(queue, id string) error {
		_, err := f.client.Enqueue(asynq.NewTask("echo", []byte("w")), asynq.Unique(time.Hour), asynq.TaskID(id), asynq.Queue(queue))
		return err
	}
	f.queuectl("enqueue", "echo", "--payload", "w", "--unique", "1h", "--unique-until", "window", "--task-id", "a")
	f.startGoServer(nil, "default")
	f.waitGone("default", "a")
	f.assertLock(lock, "window\ta", time.Hour)
	if err := enqueue("default", "b"); !errors.Is(err, asynq.ErrDuplicateTask) {
		t.Errorf("after the task, Go is told %v", err)
	}

	f.queuectl("enqueue", "echo", "--payload", "w", "--unique", "1h", "--unique-until", "window", "--task-id", "c", "--queue", "idle")
	if err := f.inspector.DeleteTask("idle", "c"); err != nil {
		t.Fatal(err)
	}
	if err := enqueue("idle", "d"); !errors.Is(err, asynq.ErrDuplicateTask) {
		t.Errorf("after the deletion, Go is told %v", err)
	}
}
