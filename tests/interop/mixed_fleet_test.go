package interop

import (
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"
)

func TestMixedFleetLosesAndDoublesNothing(t *testing.T) {
	t.Parallel()
	const half = 2500
	f := newFixture(t)
	s := f.startGoServer(func(c *asynq.Config) { c.Concurrency = 10 }, "default")
	w := f.startRustWorker(10, []string{"default=1"})

	var fromRust []batchTask
	want := map[string]bool{}
	for i := range half {
		id := "rust-" + strconv.Itoa(i)
		// A little work each, so that neither side is done before the other
		// has noticed that there is some.
		fromRust = append(fromRust, batchTask{Type: "sleep", Payload: pointer("5"), TaskID: id})
		want[id] = true
		want["go-"+strconv.Itoa(i)] = true
	}
	var both sync.WaitGroup
	defer both.Wait()
	both.Add(1)
	go func() {
		defer both.Done()
		for i := range half {
			id := asynq.TaskID("go-" + strconv.Itoa(i))
			if _, err := f.client.Enqueue(asynq.NewTask("sleep", []byte("5")), id); err != nil {
				t.Errorf("Go enqueues: %v", err)
				return
			}
		}
	}()
	f.rustEnqueueBatch(fromRust)
	both.Wait()

	total := strconv.Itoa(2 * half)
	f.eventuallyWithin(2*time.Minute, total+" tasks are processed", func() bool {
		return f.get(queueKey("default", "processed")) == total
	})
	w.stop()
	s.Shutdown()

	byRust, byGo := w.starts(), s.ids()
	runs := map[string]int{}
	for _, id := range append(byRust, byGo...) {
		runs[id]++
		if !want[id] {
			t.Errorf("task %q was never enqueued", id)
		}
	}
	for id := range want {
		if runs[id] != 1 {
			t.Errorf("task %s ran %d times", id, runs[id])
		}
	}
	if len(byRust) == 0 || len(byGo) == 0 {
		t.Errorf("Rust did %d tasks and Go %d", len(byRust), len(byGo))
	}
	f.assertOnlyCounters("default")
}
