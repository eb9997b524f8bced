package interop

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/hibiken/asynq"
)

// operation is what `queuectl` tells of a change of many tasks.
type operation struct {
	ID      string `json:"id"`
	Changed int    `json:"changed"`
	Skipped int    `json:"skipped"`
}

// TestGoSeesNothingOfTheBin has Go's Inspector and client beside tasks that
// queuectl deletes into the bin and restores.
func TestGoSeesNothingOfTheBin(t *testing.T) {
	f := newFixture(t)
	f.enqueueID("now", "pending")
	f.enqueueID("locked", "locked", asynq.Unique(time.Hour))
	f.enqueueID("later", "scheduled", asynq.ProcessIn(time.Hour))
	f.enqueueID("together", "grouped", asynq.Group("g"))
	f.enqueueID("over", "archived")
	if err := f.inspector.ArchiveTask("default", "archived"); err != nil {
		t.Fatal(err)
	}
	ids := []string{"pending", "locked", "scheduled", "grouped", "archived"}
	states := map[string]asynq.TaskState{}
	for _, id := range ids {
		states[id] = f.info("default", id).State
	}
	do := func(code int, args ...string) operation {
		t.Helper()
		out, refused := run(t, queuectl(t), append(args, "--json", "--redis", f.url)...)
		if refused == nil {
			refused = &refusal{}
		}
		if refused.code != code {
			t.Fatalf("queuectl %v: exit %d, want %d: %s", args, refused.code, code, refused.stderr)
		}
		var told operation
		if err := json.Unmarshal([]byte(out), &told); err != nil {
			t.Fatalf("queuectl %v: %v: %s", args, err, out)
		}
		return told
	}
	deleted := do(0, "task", "delete", "-q", "default", "--bin", "--yes",
		"-s", "pending", "-s", "scheduled", "-s", "aggregating", "-s", "archived")
	if deleted.Changed != len(ids) {
		t.Fatalf("%d of %d tasks went into the bin", deleted.Changed, len(ids))
	}
	for _, id := range ids {
		if _, err := f.inspector.GetTaskInfo("default", id); !errors.Is(err, asynq.ErrTaskNotFound) {
			t.Errorf("Go finds task %s in the bin: %v", id, err)
		}
		if err := f.inspector.DeleteTask("default", id); !errors.Is(err, asynq.ErrTaskNotFound) {
			t.Errorf("Go deletes task %s in the bin: %v", id, err)
		}
	}
	queue, err := f.inspector.GetQueueInfo("default")
	if err != nil || queue.Size != 0 || queue.Groups != 0 {
		t.Errorf("Go counts tasks in the bin: %+v %v", queue, err)
	}
	// The id and the lock are free: one of each is taken meanwhile.
	f.enqueueID("other", "pending")
	f.enqueueID("locked", "holder", asynq.Unique(time.Hour))

	restored := do(4, "bin", "restore", deleted.ID)
	if restored.Changed != 3 || restored.Skipped != 2 {
		t.Errorf("restored %+v", restored)
	}
	if info := f.info("default", "pending"); info.Type != "other" {
		t.Errorf("the task that took the id is %s", info.Type)
	}
	for _, id := range []string{"scheduled", "grouped", "archived"} {
		if state := f.info("default", id).State; state != states[id] {
			t.Errorf("%s is %v, and was %v", id, state, states[id])
		}
	}
	for _, id := range []string{"pending", "holder"} {
		if err := f.inspector.DeleteTask("default", id); err != nil {
			t.Fatal(err)
		}
	}
	if again := do(0, "bin", "restore", deleted.ID); again.Changed != 2 || again.Skipped != 0 {
		t.Errorf("restored %+v when the way was free", again)
	}
	if _, err := f.client.Enqueue(asynq.NewTask("locked", nil), asynq.Unique(time.Hour)); !errors.Is(err, asynq.ErrDuplicateTask) {
		t.Errorf("the lock that came back does not hold: %v", err)
	}
	// What is back can be worked with as ever.
	for _, id := range []string{"scheduled", "grouped", "archived"} {
		if err := f.inspector.RunTask("default", id); err != nil {
			t.Errorf("Go runs %s: %v", id, err)
		}
	}
	if queue, err := f.inspector.GetQueueInfo("default"); err != nil || queue.Pending != 5 {
		t.Errorf("Go counts %+v %v", queue, err)
	}
}
