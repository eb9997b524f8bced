package interop

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"queue.test/interop/internal/child"
)

// queuectl runs queuectl on the fixture's Redis; it must succeed.
func (f *fixture) queuectl(args ...string) string {
	f.t.Helper()
	out, refused := run(f.t, queuectl(f.t), append(args, "--redis", f.url)...)
	if refused != nil {
		f.t.Fatalf("queuectl %v: exit %d: %s", args, refused.code, refused.stderr)
	}
	return out
}

// refused runs queuectl, which must fail with this exit code.
func (f *fixture) refused(code int, args ...string) {
	f.t.Helper()
	_, refused := run(f.t, queuectl(f.t), append(args, "--redis", f.url)...)
	if refused == nil || refused.code != code {
		f.t.Errorf("queuectl %v: %+v, want exit %d", args, refused, code)
	}
}

// queuectlLists gives the ids that queuectl lists in a state.
func (f *fixture) queuectlLists(queue, state string, args ...string) []string {
	f.t.Helper()
	out := f.queuectl(append([]string{"task", "list", "-q", queue, "-s", state, "--json"}, args...)...)
	var tasks []struct {
		ID string `json:"id"`
	}
	if err := json.Unmarshal([]byte(out), &tasks); err != nil {
		f.t.Fatalf("queuectl lists %q: %v", out, err)
	}
	ids := []string{}
	for _, task := range tasks {
		ids = append(ids, task.ID)
	}
	return ids
}

func TestQueuectlManagesTasksOfGo(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	hour := asynq.ProcessIn(time.Hour)
	for _, id := range []string{"run", "archive", "delete"} {
		f.enqueueID("later", id, hour)
		f.enqueueID("grouped", "group-"+id, asynq.Group("g"))
	}
	f.enqueue("later", []byte("once"), asynq.TaskID("locked"), hour, asynq.Unique(time.Hour))
	f.enqueueID("later", "stays", hour)
	if got, want := f.queuectlLists("default", "scheduled"), 5; len(got) != want {
		t.Errorf("queuectl lists %q", got)
	}
	if got := f.queuectlLists("default", "aggregating", "-g", "g"); len(got) != 3 {
		t.Errorf("queuectl lists the group as %q", got)
	}
	for _, prefix := range []string{"", "group-"} {
		f.queuectl("task", "run", "-q", "default", "-i", prefix+"run")
		f.queuectl("task", "archive", "-q", "default", "-i", prefix+"archive")
		f.queuectl("task", "rm", "-q", "default", "-i", prefix+"delete")
		if got := f.info("default", prefix+"run").State; got != asynq.TaskStatePending {
			t.Errorf("Go sees the task that queuectl ran as %v", got)
		}
		if got := f.info("default", prefix+"archive").State; got != asynq.TaskStateArchived {
			t.Errorf("Go sees the task that queuectl archived as %v", got)
		}
		if _, err := f.inspector.GetTaskInfo("default", prefix+"delete"); !errors.Is(err, asynq.ErrTaskNotFound) {
			t.Errorf("Go reads the task that queuectl deleted: %v", err)
		}
	}
	f.queuectl("task", "delete", "-q", "default", "-i", "locked")
	f.enqueue("later", []byte("once"), asynq.Unique(time.Hour), hour, asynq.TaskID("again"))
	f.refused(4, "task", "run", "-q", "default", "-i", "run")
	f.refused(4, "task", "archive", "-q", "default", "-i", "archive")
	f.refused(3, "task", "delete", "-q", "default", "-i", "delete")
	f.refused(3, "task", "delete", "-q", "nowhere", "-i", "delete")

	// What is pending can be worked by Go at once.
	srv := f.startGoServer(nil, "default")
	f.waitGone("default", "run")
	srv.Shutdown()
	info, err := f.inspector.GetQueueInfo("default")
	if err != nil || info.Scheduled != 2 || info.Archived != 2 {
		t.Errorf("Go sees the queue as %+v, %v", info, err)
	}
}

func TestGoReadsAQueueThatQueuectlMoved(t *testing.T) {
	t.Parallel()
	here, there := newFixture(t), newFixture(t)
	hour := asynq.ProcessIn(time.Hour)
	here.enqueue("a", []byte{0, 0xff}, asynq.TaskID("p1"))
	here.enqueueID("a", "p2", asynq.Retention(time.Hour), asynq.MaxRetry(3))
	here.enqueue("a", []byte("once"), asynq.TaskID("locked"), asynq.Unique(time.Hour))
	here.enqueueID("a", "late", hour)
	here.enqueueID("a", "grouped", asynq.Group("g:1"))
	here.enqueueID("a", "archived", hour)
	if err := here.inspector.ArchiveTask("default", "archived"); err != nil {
		t.Fatal(err)
	}
	if err := here.inspector.PauseQueue("default"); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "export.jsonl")
	if err := os.WriteFile(file, []byte(here.queuectl("export", "--queue", "default")), 0o600); err != nil {
		t.Fatal(err)
	}
	there.queuectl("import", file)

	type tasks = []*asynq.TaskInfo
	for name, list := range map[string]func(*asynq.Inspector) (tasks, error){
		"pending":     func(i *asynq.Inspector) (tasks, error) { return i.ListPendingTasks("default") },
		"scheduled":   func(i *asynq.Inspector) (tasks, error) { return i.ListScheduledTasks("default") },
		"archived":    func(i *asynq.Inspector) (tasks, error) { return i.ListArchivedTasks("default") },
		"aggregating": func(i *asynq.Inspector) (tasks, error) { return i.ListAggregatingTasks("default", "g:1") },
	} {
		want, err := list(here.inspector)
		if err != nil || len(want) == 0 {
			t.Fatalf("Go lists %s tasks %v, %v", name, want, err)
		}
		got, err := list(there.inspector)
		if err != nil || len(got) != len(want) {
			t.Fatalf("Go lists %s tasks %v, %v", name, got, err)
		}
		for n := range want {
			// A pending task is due "now".
			want[n].NextProcessAt, got[n].NextProcessAt = time.Time{}, time.Time{}
			if name == "scheduled" {
				continue
			}
			if !reflect.DeepEqual(got[n], want[n]) {
				t.Errorf("Go reads the moved task\n%+v, not\n%+v", got[n], want[n])
			}
		}
	}
	info, err := there.inspector.GetQueueInfo("default")
	if err != nil || !info.Paused || info.Size != 6 || info.Groups != 1 {
		t.Errorf("Go reads the moved queue as %+v, %v", info, err)
	}
	duplicate := asynq.NewTask("a", []byte("once"))
	if _, err := there.client.Enqueue(duplicate, asynq.Unique(time.Hour)); !errors.Is(err, asynq.ErrDuplicateTask) {
		t.Errorf("the lock has not moved: %v", err)
	}
	if err := there.inspector.UnpauseQueue("default"); err != nil {
		t.Fatal(err)
	}
	srv := there.startGoServer(nil, "default")
	there.waitGone("default", "p1")
	there.waitState("default", "p2", asynq.TaskStateCompleted)
	there.waitGone("default", "locked")
	srv.Shutdown()
	if _, err := there.client.Enqueue(duplicate, asynq.Unique(time.Hour)); err != nil {
		t.Errorf("the lock has outlived its task: %v", err)
	}
}

// TestAnExportRefusesAQueueThatGoAggregatesMeanwhile: Go's aggregator goes on
// in a paused queue. The members were read before, what they become after.
func TestAnExportRefusesAQueueThatGoAggregatesMeanwhile(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for _, id := range []string{"a", "b"} {
		f.enqueueID("job", id, asynq.Group("g"))
	}
	// More than a pipe takes, so that the export waits for its reader.
	for n := range 200 {
		f.enqueue("ok", bytes.Repeat([]byte{'x'}, 10_000), asynq.TaskID(strconv.Itoa(n)))
	}
	if err := f.inspector.PauseQueue("default"); err != nil {
		t.Fatal(err)
	}
	cmd := child.Command(queuectl(t), "export", "--queue", "default", "--redis", f.url)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	file := bufio.NewReader(stdout)
	var lines []string
	for len(lines) < 10 {
		line, err := file.ReadString('\n')
		if err != nil {
			t.Fatalf("the export ends after %d lines: %v", len(lines), err)
		}
		lines = append(lines, line)
	}
	server, aggregator := f.startGoAggregator(0)
	f.eventually("Go has aggregated the group of a paused queue", func() bool {
		return len(aggregator.aggregates("g")) == 1 && !f.exists(taskKey("default", "a"))
	})
	server.Shutdown()
	rest, err := io.ReadAll(file)
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Join(lines, "") + string(rest)
	if n := strings.Count(text, `"line":"task"`); n != 203 {
		t.Errorf("the file has %d tasks, not the two, the others, and what the two have become", n)
	}
	_ = cmd.Wait()
	if code := cmd.ProcessState.ExitCode(); code != 4 || !strings.Contains(stderr.String(), "2 tasks of queue") {
		t.Errorf("the export ends with %d: %s", code, stderr.String())
	}
	if strings.Contains(text, `"line":"end"`) {
		t.Error("the file looks complete")
	}
}

func TestGoSeesAQueueThatQueuectlPausedAndRemoved(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.enqueueID("a", "id")
	f.queuectl("queue", "pause", "default")
	if info, err := f.inspector.GetQueueInfo("default"); err != nil || !info.Paused {
		t.Errorf("Go sees the queue as %+v, %v", info, err)
	}
	f.refused(4, "queue", "remove", "default", "--yes")
	f.refused(2, "queue", "remove", "default", "--force")
	f.queuectl("queue", "rm", "default", "-f", "-y")
	queues, err := f.inspector.Queues()
	if err != nil || len(queues) != 0 {
		t.Errorf("Go lists queues %q, %v", queues, err)
	}
	keys, err := f.rdb.Keys(ctx, "asynq:*").Result()
	// The audit is no queue's.
	if err != nil || !slices.Equal(keys, []string{"asynq:x:audit"}) {
		t.Errorf("the queue left %s, %v", strings.Join(keys, " "), err)
	}
}
