package interop

import (
	"testing"
	"time"
)

func TestRustRespectsAQueueThatGoPaused(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	w := f.startRustWorker(2, []string{"default=1", "open=1"})
	w.waitEnd(f.rustEnqueue("ok", "--task-id", "before"))

	if err := f.inspector.PauseQueue("default"); err != nil {
		t.Fatal(err)
	}
	f.rustEnqueue("ok", "--task-id", "during-rust")
	f.enqueueID("ok", "during-go")
	// Another queue of the same worker goes on.
	w.waitEnd(f.rustEnqueue("ok", "--task-id", "elsewhere", "--queue", "open"))
	f.never(3*time.Second, "Rust takes tasks from a paused queue", func() bool {
		return f.rdb.LLen(ctx, queueKey("default", "pending")).Val() != 2
	})

	if err := f.inspector.UnpauseQueue("default"); err != nil {
		t.Fatal(err)
	}
	w.waitEnd("during-rust")
	w.waitEnd("during-go")
	w.stop()
	f.assertOnlyCounters("default", "open")
}
