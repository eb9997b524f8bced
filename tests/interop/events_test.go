package interop

import (
	"bufio"
	"bytes"
	"encoding/json"
	"strings"
	"sync"
	"testing"

	"github.com/hibiken/asynq"

	"queue.test/interop/internal/child"
)

// What Go works on is not in the feed, and queuectl says so; what Rust works on of the same queue is.
func TestEventsAreOfRustServersAndTheGoServerIsNamed(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	goes := f.startGoServer(nil, "default")
	cmd := child.Command(queuectl(t), "events", "--json", "--queue", "default", "--redis", f.url)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var stderr bytes.Buffer
	cmd.Stderr = &lockedWriter{&mu, &stderr}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	f.eventually("queuectl names the Go server", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return strings.Contains(stderr.String(), "of Go's servers")
	})

	f.enqueueID("ok", "by-go")
	goes.waitRun("by-go")
	f.waitGone("default", "by-go")
	goes.Shutdown()

	w := f.startRustWorker(1, []string{"default=1"})
	f.enqueueID("ok", "by-rust", asynq.MaxRetry(0))
	w.waitEnd("by-rust")
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		var event struct{ Kind, Queue, ID, Type, Cursor string }
		if err := json.Unmarshal(lines.Bytes(), &event); err != nil {
			t.Fatalf("%s: %v", lines.Text(), err)
		}
		if event.ID == "by-go" {
			t.Fatalf("Go's task is told: %s", lines.Text())
		}
		if event.Queue != "default" || event.ID != "by-rust" || event.Type != "ok" || event.Cursor == "" {
			t.Fatalf("an event of something else: %s", lines.Text())
		}
		if event.Kind == "succeeded" {
			break
		}
	}
	// Go's tools see nothing of the keys that are ours.
	queues, err := f.inspector.Queues()
	if err != nil || len(queues) != 1 || queues[0] != "default" {
		t.Errorf("Go lists the queues %v, %v", queues, err)
	}
	if info, err := f.inspector.GetQueueInfo("default"); err != nil || info.Size != 0 {
		t.Errorf("Go reads %+v, %v", info, err)
	}
}
