package interop

import (
	"slices"
	"testing"

	"github.com/hibiken/asynq"
)

func TestAGoServerTakesATaskInFrontNextAndGosToolsShowIt(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.enqueue("t", nil, asynq.TaskID("first"))
	f.queuectl("enqueue", "t", "--task-id", "front", "--front")
	// Go looks at its own lock, which is the same.
	f.queuectl("enqueue", "t", "--task-id", "unique", "--front", "--unique", "1h", "--payload", "p")
	if _, err := f.client.Enqueue(asynq.NewTask("t", []byte("p")), asynq.Unique(1e9)); err == nil {
		t.Error("Go enqueues a twin")
	}
	f.enqueue("t", nil, asynq.TaskID("last"))
	tasks, err := f.inspector.ListPendingTasks("default")
	if err != nil || len(tasks) != 4 {
		t.Fatalf("Go lists %v, %v", tasks, err)
	}
	server := f.startGoServer(func(config *asynq.Config) { config.Concurrency = 1 }, "default")
	server.waitRun("last")
	if got, want := server.ids(), []string{"unique", "front", "first", "last"}; !slices.Equal(got, want) {
		t.Errorf("Go runs %v, want %v", got, want)
	}
}
