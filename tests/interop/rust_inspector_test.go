package interop

import (
	"errors"
	"testing"
	"time"

	"github.com/hibiken/asynq"
)

// What Go makes, Rust runs, archives and deletes in each state; Go sees what
// became of it, and nothing is left over.
func TestRustInspectsGoTasksInEachState(t *testing.T) {
	t.Parallel()
	options := map[asynq.TaskState]asynq.Option{
		asynq.TaskStateScheduled:   asynq.ProcessIn(time.Hour),
		asynq.TaskStateAggregating: asynq.Group("g"),
		asynq.TaskStateCompleted:   asynq.Retention(time.Hour),
	}
	for _, c := range stateCases {
		t.Run(c.state.String(), func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			for _, id := range []string{"to-archive", "to-delete", "to-run"} {
				// Unique, so that a lock that stays is seen.
				opts := []asynq.Option{asynq.TaskID(id), asynq.Unique(time.Hour)}
				if option, ok := options[c.state]; ok {
					opts = append(opts, option)
				}
				f.enqueue(c.typ, []byte(id), opts...)
			}
			if c.byWorker {
				server := f.startGoServer(nil, "default")
				for _, id := range []string{"to-archive", "to-delete", "to-run"} {
					f.waitState("default", id, c.state)
				}
				server.Shutdown()
			}
			rustInspects(f, c.state)
		})
	}
}

func rustInspects(f *fixture, state asynq.TaskState) {
	f.t.Helper()
	change := func(verb, id string, refused bool) {
		f.t.Helper()
		if refused {
			f.refused(4, "task", verb, "-q", "default", "-i", id)
		} else {
			f.queuectl("task", verb, "-q", "default", "-i", id)
		}
	}
	change("run", "to-run", state == asynq.TaskStatePending)
	change("archive", "to-archive", state == asynq.TaskStateArchived)
	change("delete", "to-delete", false)
	if got := f.info("default", "to-run").State; got != asynq.TaskStatePending {
		f.t.Errorf("Go sees the task that Rust ran as %v", got)
	}
	if got := f.info("default", "to-archive").State; got != asynq.TaskStateArchived {
		f.t.Errorf("Go sees the task that Rust archived as %v", got)
	}
	if _, err := f.inspector.GetTaskInfo("default", "to-delete"); !errors.Is(err, asynq.ErrTaskNotFound) {
		f.t.Errorf("Go reads the task that Rust deleted: %v", err)
	}
	if info, err := f.inspector.GetQueueInfo("default"); err != nil || info.Size != 2 {
		f.t.Errorf("Go sees the queue as %+v, %v", info, err)
	}

	// What is pending is worked, the locks of what was deleted are free, and a
	// removal leaves nothing.
	server := f.startGoServer(func(c *asynq.Config) { c.IsFailure = nil }, "default")
	f.eventually("the task that Rust ran is done", func() bool {
		info, err := f.inspector.GetTaskInfo("default", "to-run")
		return errors.Is(err, asynq.ErrTaskNotFound) || err == nil && info.State != asynq.TaskStatePending && info.State != asynq.TaskStateActive
	})
	server.Shutdown()
	if _, refused := run(f.t, interopPeer(f.t), "remove-queue", "default", "--redis", f.url); refused != nil {
		f.t.Errorf("Rust removes the queue: exit %d: %s", refused.code, refused.stderr)
	}
	if keys := f.rdb.Keys(ctx, "asynq:{default}:*").Val(); len(keys) > 0 {
		f.t.Errorf("removing the queue leaves %q", keys)
	}
	if queues, err := f.inspector.Queues(); err != nil || len(queues) > 0 {
		f.t.Errorf("Go sees the queues %q, %v", queues, err)
	}
}
