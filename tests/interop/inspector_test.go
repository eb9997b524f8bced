package interop

import (
	"errors"
	"slices"
	"testing"

	"github.com/hibiken/asynq"
)

// stateCase says how Rust brings tasks to a state, and how Go lists them.
type stateCase struct {
	state asynq.TaskState
	typ   string
	args  []string
	// byWorker: a Rust worker takes the task to the state, not the client.
	byWorker bool
	list     func(*asynq.Inspector) ([]*asynq.TaskInfo, error)
}

var stateCases = []stateCase{
	{
		state: asynq.TaskStatePending, typ: "ok",
		list: func(i *asynq.Inspector) ([]*asynq.TaskInfo, error) { return i.ListPendingTasks("default") },
	},
	{
		state: asynq.TaskStateScheduled, typ: "ok", args: []string{"--in", "1h"},
		list: func(i *asynq.Inspector) ([]*asynq.TaskInfo, error) { return i.ListScheduledTasks("default") },
	},
	{
		state: asynq.TaskStateAggregating, typ: "ok", args: []string{"--group", "g"},
		list: func(i *asynq.Inspector) ([]*asynq.TaskInfo, error) { return i.ListAggregatingTasks("default", "g") },
	},
	{
		state: asynq.TaskStateRetry, typ: "fail", byWorker: true,
		list: func(i *asynq.Inspector) ([]*asynq.TaskInfo, error) { return i.ListRetryTasks("default") },
	},
	{
		state: asynq.TaskStateArchived, typ: "skip", byWorker: true,
		list: func(i *asynq.Inspector) ([]*asynq.TaskInfo, error) { return i.ListArchivedTasks("default") },
	},
	{
		state: asynq.TaskStateCompleted, typ: "ok", args: []string{"--retention", "1h"}, byWorker: true,
		list: func(i *asynq.Inspector) ([]*asynq.TaskInfo, error) { return i.ListCompletedTasks("default") },
	},
}

func TestGoInspectsRustTasksInEachState(t *testing.T) {
	t.Parallel()
	for _, c := range stateCases {
		t.Run(c.state.String(), func(t *testing.T) {
			t.Parallel()
			inspectState(newFixture(t), c)
		})
	}
}

func inspectState(f *fixture, c stateCase) {
	f.t.Helper()
	ids := []string{"to-archive", "to-delete", "to-run"}
	for _, id := range ids {
		args := append([]string{"--task-id", id, "--payload", "p-" + id}, c.args...)
		f.rustEnqueue(c.typ, args...)
	}
	if c.byWorker {
		w := f.startRustWorker(2, []string{"default=1"})
		for _, id := range ids {
			f.waitState("default", id, c.state)
		}
		w.stop()
	}
	assertListed(f, c, ids)
	// Counts, latency and memory use walk over all keys of the queue.
	info, err := f.inspector.GetQueueInfo("default")
	if err != nil {
		f.t.Fatalf("Go reads the queue: %v", err)
	}
	if info.Size != len(ids) || info.MemoryUsage <= 0 {
		f.t.Errorf("Go reads queue size %d and %d bytes", info.Size, info.MemoryUsage)
	}

	if err := f.inspector.RunTask("default", "to-run"); (err != nil) != (c.state == asynq.TaskStatePending) {
		f.t.Errorf("Go runs a task: %v", err)
	}
	if got := f.info("default", "to-run").State; got != asynq.TaskStatePending {
		f.t.Errorf("the task Go ran is %v", got)
	}
	if err := f.inspector.ArchiveTask("default", "to-archive"); (err != nil) != (c.state == asynq.TaskStateArchived) {
		f.t.Errorf("Go archives a task: %v", err)
	}
	if got := f.info("default", "to-archive").State; got != asynq.TaskStateArchived {
		f.t.Errorf("the task Go archived is %v", got)
	}
	if err := f.inspector.DeleteTask("default", "to-delete"); err != nil {
		f.t.Errorf("Go deletes a task: %v", err)
	}
	if _, err := f.inspector.GetTaskInfo("default", "to-delete"); !errors.Is(err, asynq.ErrTaskNotFound) {
		f.t.Errorf("Go reads the task it deleted: %v", err)
	}
	for _, state := range []string{"scheduled", "retry", "completed", "groups", "g:g"} {
		if f.exists(queueKey("default", state)) {
			f.t.Errorf("%s is not empty", queueKey("default", state))
		}
	}
}

func assertListed(f *fixture, c stateCase, ids []string) {
	f.t.Helper()
	tasks, err := c.list(f.inspector)
	if err != nil {
		f.t.Fatalf("Go lists: %v", err)
	}
	var listed []string
	for _, task := range tasks {
		listed = append(listed, task.ID)
		if task.State != c.state || task.Type != c.typ || string(task.Payload) != "p-"+task.ID {
			f.t.Errorf("Go lists %+v", task)
		}
	}
	slices.Sort(listed)
	if !slices.Equal(listed, ids) {
		f.t.Errorf("Go lists %q, want %q", listed, ids)
	}
}

func TestGoInspectsATaskThatRustRuns(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	id := f.rustEnqueue("hang")
	w := f.startRustWorker(1, []string{"default=1"})
	w.waitStart(id)
	tasks, err := f.inspector.ListActiveTasks("default")
	if err != nil || len(tasks) != 1 || tasks[0].ID != id || tasks[0].IsOrphaned {
		t.Fatalf("Go lists active tasks %+v, %v", tasks, err)
	}
	for name, change := range map[string]func(queue, id string) error{
		"runs": f.inspector.RunTask, "archives": f.inspector.ArchiveTask, "deletes": f.inspector.DeleteTask,
	} {
		if change("default", id) == nil {
			t.Errorf("Go %s an active task", name)
		}
	}
	if got := f.info("default", id).State; got != asynq.TaskStateActive {
		t.Errorf("the task is %v", got)
	}
}
