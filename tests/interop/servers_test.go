package interop

import (
	"maps"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/hibiken/asynq"
)

// onlyServer reads the one server there is, nil if there is none.
func (f *fixture) onlyServer() *asynq.ServerInfo {
	f.t.Helper()
	servers, err := f.inspector.Servers()
	if err != nil {
		f.t.Fatalf("Go lists servers: %v", err)
	}
	if len(servers) > 1 {
		f.t.Fatalf("Go lists %d servers", len(servers))
	}
	if len(servers) == 0 {
		return nil
	}
	return servers[0]
}

func TestGoSeesTheRustServerAndItsWorkers(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	before := time.Now()
	w := f.startRustWorker(7, []string{"default=2", "low=1", "critical=6"}, "--strict")
	var server *asynq.ServerInfo
	f.eventually("Go lists the Rust server", func() bool {
		server = f.onlyServer()
		return server != nil
	})
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	queues := map[string]int{"default": 2, "low": 1, "critical": 6}
	if server.Host != host || server.PID != w.pid() || server.Concurrency != 7 || server.ID == "" ||
		!server.StrictPriority || server.Status != "active" || !maps.Equal(server.Queues, queues) ||
		len(server.ActiveWorkers) != 0 {
		t.Errorf("Go reads %+v", server)
	}
	if server.Started.Before(before.Add(-time.Second)) || server.Started.After(time.Now().Add(time.Second)) {
		t.Errorf("Go reads start %v, it was about %v", server.Started, before)
	}

	f.rustEnqueue("hang", "--task-id", "from-rust", "--payload", "{\"id\":1}", "--queue", "low")
	f.enqueue("hang", []byte("\x00\xff"), asynq.TaskID("from-go"), asynq.Timeout(time.Hour))
	f.eventually("Go lists both workers", func() bool {
		server = f.onlyServer()
		return server != nil && len(server.ActiveWorkers) == 2
	})
	for _, worker := range server.ActiveWorkers {
		started := w.waitStart(worker.TaskID)
		if worker.TaskType != "hang" || worker.Queue != started.Queue ||
			string(worker.TaskPayload) != string(started.payload(f)) {
			t.Errorf("Go reads worker %+v", worker)
		}
		if !near(worker.Started, time.Unix(0, started.TimeNs), 2*time.Second) {
			t.Errorf("Go reads that %s started at %v", worker.TaskID, worker.Started)
		}
		if !near(worker.Deadline, time.Unix(started.DeadlineUnix, 0), 2*time.Second) {
			t.Errorf("Go reads deadline %v of %s", worker.Deadline, worker.TaskID)
		}
	}
	if server.Status != "active" || server.PID != w.pid() {
		t.Errorf("Go reads %+v", server)
	}

	for _, id := range []string{"from-rust", "from-go"} {
		if err := f.inspector.CancelProcessing(id); err != nil {
			t.Fatal(err)
		}
	}
	f.eventually("the workers are gone", func() bool {
		server = f.onlyServer()
		return server != nil && len(server.ActiveWorkers) == 0
	})
	w.stop()
	if server := f.onlyServer(); server != nil {
		t.Errorf("after the end Go reads %+v", server)
	}
	for _, key := range f.keys() {
		if isOfServer(key) {
			t.Errorf("key %s is left", key)
		}
	}
}

func TestGoSeesTheRustServerStopped(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	w := f.startRustWorker(2, []string{"default=1"}, "--shutdown-timeout-secs", "1")
	f.rustEnqueue("hang", "--task-id", "running")
	w.waitStart("running")
	w.signal(syscall.SIGTSTP)
	var server *asynq.ServerInfo
	f.eventually("Go lists the Rust server as stopped", func() bool {
		server = f.onlyServer()
		return server != nil && server.Status == "stopped"
	})
	f.enqueueID("ok", "late")
	f.never(3*time.Second, "a stopped Rust server takes a task", func() bool {
		_, started := w.find(func(e event) bool { return e.ID == "late" })
		return started
	})
	// What runs goes on, and can still be cancelled.
	if got := f.info("default", "running").State; got != asynq.TaskStateActive {
		t.Errorf("the running task is %v", got)
	}
	if server := f.onlyServer(); server == nil || server.Status != "stopped" || len(server.ActiveWorkers) != 1 {
		t.Errorf("Go reads %+v", server)
	}
	if err := f.inspector.CancelProcessing("running"); err != nil {
		t.Fatal(err)
	}
	f.waitState("default", "running", asynq.TaskStateRetry)
	w.stop()
	if got := f.info("default", "late").State; got != asynq.TaskStatePending {
		t.Errorf("the late task is %v", got)
	}
}

func TestGoSeesWhatARustServerWasOrderedAndItsOwnTakeNoOrders(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	w := f.startRustWorker(7, []string{"default=2", "low=1"})
	var server *asynq.ServerInfo
	f.eventually("Go lists the Rust server", func() bool {
		server = f.onlyServer()
		return server != nil
	})
	f.queuectl("server", "set", server.ID, "--concurrency", "3", "--queue", "low=5")
	f.queuectl("server", "quiet", server.ID)
	server = f.onlyServer()
	if server.Status != "stopped" || server.Concurrency != 3 || !maps.Equal(server.Queues, map[string]int{"default": 2, "low": 5}) {
		t.Errorf("Go reads %+v", server)
	}
	f.enqueueID("ok", "late")
	f.queuectl("server", "reset", server.ID)
	f.eventually("the task is worked", func() bool { return f.get(queueKey("default", "processed")) == "1" })
	w.stop()
	f.startGoServer(func(*asynq.Config) {}, "default")
	f.eventually("Go lists its own server", func() bool {
		server = f.onlyServer()
		return server != nil
	})
	f.refused(7, "server", "quiet", server.ID)
}
