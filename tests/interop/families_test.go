package interop

import (
	"context"
	"maps"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"queue.test/interop/internal/child"
	"queue.test/interop/internal/redistest"
)

// familyQueues are names as our clients make them: a level, the mailbox of a
// server, and the queue of two labels.
var familyQueues = []string{"mail", "mail}p9", "mail}@gpu-3", "mail}#eu+gpu"}

// mailSlot is what CLUSTER KEYSLOT says of "{mail}".
const mailSlot = 4247

// workFamily has Go's client, Inspector and server do all they can do with
// queues of a family.
func workFamily(t *testing.T, opt asynq.RedisConnOpt) {
	client, inspector := asynq.NewClient(opt), asynq.NewInspector(opt)
	defer client.Close()
	defer inspector.Close()
	f := &fixture{t: t, client: client, inspector: inspector}
	// Each container of a queue has one of them.
	options := map[string][]asynq.Option{
		"run":     {asynq.ProcessIn(time.Hour)},
		"deleted": {asynq.ProcessIn(time.Hour)},
		"kept":    {asynq.Unique(time.Hour), asynq.Retention(time.Hour)},
		"grouped": {asynq.Group("g")},
		"fail":    {asynq.MaxRetry(0)},
	}
	weights := map[string]int{}
	for _, queue := range familyQueues {
		weights[queue] = 1
		for id, with := range options {
			f.enqueueID(id, id, append(with, asynq.Queue(queue))...)
		}
		if _, err := client.Enqueue(asynq.NewTask("kept", nil), asynq.Queue(queue), asynq.Unique(time.Hour)); err == nil {
			t.Errorf("%s: Go's lock does not hold", queue)
		}
		if err := inspector.PauseQueue(queue); err != nil {
			t.Errorf("Go pauses %s: %v", queue, err)
		}
		if err := inspector.UnpauseQueue(queue); err != nil {
			t.Errorf("Go resumes %s: %v", queue, err)
		}
		if err := inspector.RunTask(queue, "run"); err != nil {
			t.Errorf("Go runs a task of %s: %v", queue, err)
		}
		if err := inspector.DeleteTask(queue, "deleted"); err != nil {
			t.Errorf("Go deletes a task of %s: %v", queue, err)
		}
		if err := inspector.ArchiveTask(queue, "grouped"); err != nil {
			t.Errorf("Go archives a task of %s: %v", queue, err)
		}
	}
	names, err := inspector.Queues()
	slices.Sort(names)
	if want := slices.Sorted(slices.Values(familyQueues)); err != nil || !slices.Equal(names, want) {
		t.Errorf("Go lists the queues %v: %v", names, err)
	}

	var mutex sync.Mutex
	ran := map[string]int{}
	server := asynq.NewServer(opt, asynq.Config{Concurrency: 4, Queues: weights, LogLevel: asynq.FatalLevel})
	err = server.Start(asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
		queue, _ := asynq.GetQueueName(ctx)
		mutex.Lock()
		defer mutex.Unlock()
		ran[queue]++
		if task.Type() == "fail" {
			return asynq.SkipRetry
		}
		return nil
	}))
	if err != nil {
		t.Fatal(err)
	}
	defer server.Shutdown()
	for _, queue := range familyQueues {
		f.waitState(queue, "kept", asynq.TaskStateCompleted)
		f.waitState(queue, "fail", asynq.TaskStateArchived)
		f.eventually("Go works all of "+queue, func() bool {
			info, err := inspector.GetQueueInfo(queue)
			return err == nil && info.Size == 3 && info.Archived == 2 && info.Completed == 1 && info.Processed == 3
		})
		mutex.Lock()
		if ran[queue] != 3 {
			t.Errorf("Go ran %d tasks of %s", ran[queue], queue)
		}
		mutex.Unlock()
		if slot, err := inspector.ClusterKeySlot(queue); err == nil && slot != mailSlot {
			t.Errorf("Go finds %s in slot %d", queue, slot)
		}
	}
	servers, err := inspector.Servers()
	if err != nil || len(servers) != 1 || len(servers[0].Queues) != len(familyQueues) {
		t.Errorf("Go lists the servers %+v: %v", servers, err)
	}
	for _, queue := range familyQueues[1:] {
		if err := inspector.DeleteQueue(queue, true); err != nil {
			t.Errorf("Go deletes %s: %v", queue, err)
		}
	}
	if info, err := inspector.GetQueueInfo("mail"); err != nil || info.Size != 3 {
		t.Errorf("the base queue has %+v after the others are deleted: %v", info, err)
	}
}

func TestGoWorksQueuesOfAFamily(t *testing.T) {
	t.Parallel()
	workFamily(t, newFixture(t).opt)
}

func TestGoWorksQueuesOfAFamilyInACluster(t *testing.T) {
	t.Parallel()
	fleet, err := redistest.StartCluster()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(fleet.Stop)
	workFamily(t, asynq.RedisClusterClientOpt{Addrs: fleet.Addrs})
}

// Priorities given by either side are worked by the other.
func TestPrioritiesPassBetweenGoAndRust(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for id, args := range map[string][]string{"high": {"--priority", "9"}, "low": {"--priority", "0"}, "middle": nil} {
		args = append(args, "--queue", "mail", "--task-id", id, "--payload", id, "--unique", "1h", "--retention", "1h")
		f.rustEnqueue("ok", args...)
	}
	_, refused := f.tryRustEnqueue("ok", "--queue", "mail", "--payload", "high", "--unique", "1h")
	if refused == nil {
		t.Error("a unique task is unique in its priority alone")
	}
	server := f.startGoServer(func(config *asynq.Config) { config.Concurrency, config.StrictPriority = 1, true },
		"mail", "mail}p9", "mail}p0")
	for _, id := range []string{"high", "low", "middle"} {
		server.waitRun(id)
	}
	// The lock of a completed task of a level is free, though it lies below the base.
	f.eventually("Go frees the lock", func() bool {
		_, refused := f.tryRustEnqueue("ok", "--queue", "mail", "--task-id", "again", "--payload", "high", "--unique", "1h")
		return refused == nil
	})
	server.Shutdown()

	worker := child.Command(queuectl(t), "worker", "--queue", "mail", "--priorities", "strict", "--exec", "ok=cat", "--redis", f.url)
	if err := worker.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		worker.Process.Signal(syscall.SIGTERM)
		worker.Wait()
	})
	for _, queue := range []string{"mail}p9", "mail}p3"} {
		f.enqueueID("ok", "go", asynq.Queue(queue), asynq.Retention(time.Hour))
		f.waitState(queue, "go", asynq.TaskStateCompleted)
	}
	f.eventually("Go sees what the worker serves", func() bool {
		servers, err := f.inspector.Servers()
		return err == nil && len(servers) == 1 && servers[0].Queues["mail}p3"] == 1 && servers[0].Queues["mail"] == 1
	})
}

// Tasks for certain servers are passed between Go and Rust, and each side
// works those of the other.
func TestTargetsPassBetweenGoAndRust(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	targets := map[string][]string{
		"mail}@web-1":  {"--only", "web-1"},
		"mail}#eu+gpu": {"--label", "gpu", "--label", "eu"},
	}
	if _, refused := f.tryRustEnqueue("ok", "--queue", "mail", "--only", "web-1"); refused == nil || refused.code != 3 {
		t.Errorf("nobody is there, and the task is accepted: %+v", refused)
	}
	server := f.startGoServer(nil, "mail", "mail}@web-1", "mail}#eu+gpu")
	f.eventually("Go's server is listed", func() bool {
		servers, err := f.inspector.Servers()
		return err == nil && len(servers) == 1
	})
	for queue, args := range targets {
		// Without --force: a server of Go that names the queue is one of those that may run the task.
		args = append(args, "--queue", "mail", "--task-id", "rust", "--payload", queue, "--unique", "1h", "--retention", "1h")
		f.rustEnqueue("ok", args...)
		f.waitState(queue, "rust", asynq.TaskStateCompleted)
	}
	// The lock of a completed task of a mailbox is free, though it lies below the base.
	f.eventually("Go frees the lock", func() bool {
		_, refused := f.tryRustEnqueue("ok", "--queue", "mail", "--task-id", "again", "--payload", "mail}@web-1", "--unique", "1h")
		return refused == nil
	})
	server.Shutdown()

	worker := child.Command(queuectl(t), "worker", "--queue", "mail", "--name", "web-1", "--label", "gpu", "--label", "eu",
		"--exec", "ok=cat", "--redis", f.url)
	if err := worker.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		worker.Process.Signal(syscall.SIGTERM)
		worker.Wait()
	})
	for queue := range targets {
		f.enqueueID("ok", "go", asynq.Queue(queue), asynq.Retention(time.Hour))
		f.waitState(queue, "go", asynq.TaskStateCompleted)
	}
	f.enqueueID("ok", "go", asynq.Queue("mail}@web-2"))
	f.eventually("Go sees what the worker serves", func() bool {
		servers, err := f.inspector.Servers()
		return err == nil && len(servers) == 1 && len(servers[0].Queues) == 3 && servers[0].Queues["mail}@web-1"] == 1
	})
	f.waitState("mail}@web-2", "go", asynq.TaskStatePending)
}

// A Rust worker of a pattern works what Go's clients put into queues that come
// later, Go's tools see which it serves, and a queue that Go deletes is left.
func TestQueuesByPatternPassBetweenGoAndRust(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	worker := child.Command(queuectl(t), "worker", "--queue", "tenant:*=2", "--exec", "ok=cat", "--redis", f.url)
	if err := worker.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		worker.Process.Signal(syscall.SIGTERM)
		worker.Wait()
	})
	serves := func(queues map[string]int) {
		t.Helper()
		f.eventually("Go sees what the worker serves", func() bool {
			server := f.onlyServer()
			return server != nil && maps.Equal(server.Queues, queues)
		})
	}
	serves(map[string]int{})
	for _, queue := range []string{"tenant:a", "tenant:b", "other"} {
		f.enqueueID("ok", "go", asynq.Queue(queue), asynq.Retention(time.Hour))
	}
	f.waitState("tenant:a", "go", asynq.TaskStateCompleted)
	f.waitState("tenant:b", "go", asynq.TaskStateCompleted)
	serves(map[string]int{"tenant:a": 2, "tenant:b": 2})
	f.waitState("other", "go", asynq.TaskStatePending)
	if err := f.inspector.DeleteQueue("tenant:a", true); err != nil {
		t.Fatal(err)
	}
	serves(map[string]int{"tenant:b": 2})
	// A client that is new to the queue lists it again.
	f.rustEnqueue("ok", "--queue", "tenant:a", "--task-id", "rust", "--retention", "1h")
	f.waitState("tenant:a", "rust", asynq.TaskStateCompleted)
	serves(map[string]int{"tenant:a": 2, "tenant:b": 2})
}
