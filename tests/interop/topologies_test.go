package interop

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"queue.test/interop/internal/redistest"
)

// A cluster: Go and Rust enqueue into queues on different masters and work
// them at the same time; each inspects what the other did.
func TestClusterIsSharedByGoAndRust(t *testing.T) {
	t.Parallel()
	fleet, err := redistest.StartCluster()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(fleet.Stop)
	opt := asynq.RedisClusterClientOpt{Addrs: fleet.Addrs}
	mixedFleet(t, opt, "redis+cluster://"+strings.Join(fleet.Addrs, ","), nil)
}

// Sentinel: the same, with the death of the master in between.
func TestSentinelIsSharedByGoAndRust(t *testing.T) {
	t.Parallel()
	fleet, err := redistest.StartSentinel()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(fleet.Stop)
	sentinels := fleet.Addrs[3:]
	opt := asynq.RedisFailoverClientOpt{MasterName: "mymaster", SentinelAddrs: sentinels}
	url := "redis-sentinel://" + strings.Join(sentinels, ",") + "/0?master=mymaster"
	// What Go reads, we read.
	if _, err := asynq.ParseRedisURI(url); err != nil {
		t.Fatal(err)
	}
	mixedFleet(t, opt, url, func() {
		if err := fleet.KillMaster(); err != nil {
			t.Fatal(err)
		}
	})
}

// mixedFleet has a Go server and a Rust server work the tasks of both. If
// there is something to happen, it does so between two halves of them.
func mixedFleet(t *testing.T, opt asynq.RedisConnOpt, url string, happen func()) {
	queues := []string{"a", "b", "c"}
	client, inspector := asynq.NewClient(opt), asynq.NewInspector(opt)
	defer client.Close()
	defer inspector.Close()
	f := &fixture{t: t, url: url, inspector: inspector}

	var mutex sync.Mutex
	byGo := map[string]int{}
	server := asynq.NewServer(opt, asynq.Config{
		Concurrency: 4, Queues: map[string]int{"a": 1, "b": 1, "c": 1}, LogLevel: asynq.FatalLevel,
	})
	err := server.Start(asynq.HandlerFunc(func(_ context.Context, task *asynq.Task) error {
		mutex.Lock()
		defer mutex.Unlock()
		byGo[task.Type()]++
		return nil
	}))
	if err != nil {
		t.Fatal(err)
	}
	defer server.Shutdown()
	f.startRustWorker(4, []string{"a=1", "b=1", "c=1"})

	half := func(part string) {
		for n := range 30 {
			queue := queues[n%3]
			id := fmt.Sprintf("go-%s-%d", part, n)
			f.eventually("Go enqueues "+id, func() bool {
				_, err := client.Enqueue(asynq.NewTask("ok", nil), asynq.Queue(queue), asynq.TaskID(id),
					asynq.Retention(time.Hour))
				return err == nil || strings.Contains(err.Error(), "conflicts")
			})
		}
		for n := range 6 {
			id := fmt.Sprintf("rust-%s-%d", part, n)
			f.eventually("Rust enqueues "+id, func() bool {
				_, refused := f.tryRustEnqueue("ok", "--queue", queues[n%3], "--task-id", id, "--retention", "1h")
				return refused == nil || strings.Contains(refused.stderr, "conflict")
			})
		}
		for n := range 30 {
			f.waitState(queues[n%3], fmt.Sprintf("go-%s-%d", part, n), asynq.TaskStateCompleted)
		}
		for n := range 6 {
			f.waitState(queues[n%3], fmt.Sprintf("rust-%s-%d", part, n), asynq.TaskStateCompleted)
		}
	}
	half("first")
	if happen != nil {
		happen()
	}
	half("second")

	names, err := inspector.Queues()
	if err != nil || len(names) != 3 {
		t.Fatalf("Go lists the queues %v: %v", names, err)
	}
	for _, queue := range queues {
		out, refused := run(t, queuectl(t), "queue", "inspect", queue, "--json", "--redis", url)
		if refused != nil || !strings.Contains(out, "24") {
			t.Errorf("queuectl queue inspect %s: %v\n%s", queue, refused, out)
		}
		if info, err := inspector.GetQueueInfo(queue); err != nil || info.Completed != 24 {
			t.Errorf("Go inspects %s: %+v, %v", queue, info, err)
		}
	}
	// Away with a queue, and back.
	exported, refused := run(t, queuectl(t), "export", "--live", "-q", "a", "--redis", url)
	if refused != nil {
		t.Fatalf("queuectl export: %v", refused)
	}
	file := filepath.Join(t.TempDir(), "export")
	if err := os.WriteFile(file, []byte(exported), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, refused := run(t, queuectl(t), "queue", "remove", "--force", "--yes", "a", "--redis", url); refused != nil {
		t.Fatalf("queuectl queue remove: %v", refused)
	}
	if _, refused := run(t, queuectl(t), "import", file, "--redis", url); refused != nil {
		t.Fatalf("queuectl import: %v", refused)
	}
	if info, err := inspector.GetQueueInfo("a"); err != nil || info.Completed != 24 {
		t.Errorf("Go inspects the imported queue: %+v, %v", info, err)
	}
}
