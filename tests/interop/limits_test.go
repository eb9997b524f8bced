package interop

import (
	"encoding/json"
	"math/rand"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
)

// enqueueOf puts tasks of a tenant in with Go's client.
func (f *fixture) enqueueOf(tenant, typ, payload string, ids ...string) {
	f.t.Helper()
	for _, id := range ids {
		headers := map[string]string{"tenant": tenant}
		f.enqueueTask(asynq.NewTaskWithHeaders(typ, []byte(payload), headers), asynq.Queue("mail"), asynq.TaskID(id))
	}
}

// parked answers the ids that Go's inspector lists as scheduled; none may be blank.
func (f *fixture) parked() []string {
	f.t.Helper()
	tasks, err := f.inspector.ListScheduledTasks("mail", asynq.PageSize(1000))
	if err != nil {
		f.t.Fatalf("Go lists scheduled tasks: %v", err)
	}
	var ids []string
	for _, task := range tasks {
		if task.ID == "" || task.Type == "" || task.Queue != "mail" || task.State != asynq.TaskStateScheduled {
			f.t.Errorf("Go sees a blank parked task: %+v", task)
		}
		if until := time.Until(task.NextProcessAt); until < time.Minute || until > 2*time.Hour {
			f.t.Errorf("Go is told that task %s is due in %v", task.ID, until)
		}
		ids = append(ids, task.ID)
	}
	slices.Sort(ids)
	return ids
}

// do is a step of Go's inspector, which must succeed.
func (f *fixture) do(what string, err error) {
	f.t.Helper()
	if err != nil {
		f.t.Fatalf("Go's inspector: %s: %v", what, err)
	}
}

// limitsOff removes the limits, and what was written down of the commands.
func (f *fixture) limitsOff() {
	f.t.Helper()
	f.queuectl("limit", "off", "-q", "mail")
	if err := f.rdb.Del(ctx, "asynq:x:audit").Err(); err != nil {
		f.t.Fatal(err)
	}
}

func TestGoRunsDeletesArchivesAndForwardsWhatWaitsUnderALimit(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.queuectl("limit", "set", "tenant", "-q", "mail", "--key", "header:tenant", "--concurrency", "1")
	f.queuectl("limit", "key", "tenant", "acme", "-q", "mail", "--pause")
	w := f.startRustWorker(5, []string{"mail=1"})
	f.enqueueOf("acme", "ok", "x", "run", "delete", "archive", "forward", "stay")
	f.enqueueOf("beta", "ok", "x", "other")
	w.waitEnd("other")
	all := []string{"archive", "delete", "forward", "run", "stay"}
	f.eventually("all of the paused key are parked", func() bool { return slices.Equal(f.parked(), all) })
	for _, id := range all {
		if info := f.info("mail", id); string(info.Payload) != "x" || info.State != asynq.TaskStateScheduled {
			t.Errorf("Go reads %+v", info)
		}
	}

	// What is run is judged again, and parked.
	f.do("run", f.inspector.RunTask("mail", "run"))
	f.eventually("it is parked again", func() bool { return slices.Contains(f.parked(), "run") })
	f.do("delete", f.inspector.DeleteTask("mail", "delete"))
	f.do("archive", f.inspector.ArchiveTask("mail", "archive"))
	if got, want := f.parked(), []string{"forward", "run", "stay"}; !slices.Equal(got, want) {
		t.Errorf("parked are %v, not %v", got, want)
	}
	if out := f.queuectl("doctor"); !strings.Contains(out, "stale-wait") && !strings.Contains(out, "does not wait in it") {
		t.Errorf("the doctor says nothing of what Go did:\n%s", out)
	}
	w.stop()

	// A server of Go takes what is pending without asking, and forwards what is due.
	s := f.startGoServer(nil, "mail")
	f.do("run", f.inspector.RunTask("mail", "run"))
	s.waitRun("run")
	past := redis.Z{Score: float64(time.Now().Unix() - 5), Member: "forward"}
	if err := f.rdb.ZAddXX(ctx, queueKey("mail", "scheduled"), past).Err(); err != nil {
		t.Fatal(err)
	}
	s.waitRun("forward")
	f.eventually("the server of Go is named", func() bool {
		var limits []struct {
			UnawareServers []string `json:"unaware_servers"`
		}
		out := f.queuectl("limit", "ls", "--json")
		if err := json.Unmarshal([]byte(out), &limits); err != nil {
			t.Fatalf("queuectl limit ls: %v in %s", err, out)
		}
		return len(limits) == 1 && len(limits[0].UnawareServers) == 1
	})
	f.waitGone("mail", "run")
	f.waitGone("mail", "forward")
	s.Shutdown()

	f.queuectl("limit", "key", "tenant", "acme", "-q", "mail", "--resume")
	w = f.startRustWorker(5, []string{"mail=1"})
	w.waitEnd("stay")
	f.do("run", f.inspector.RunTask("mail", "archive"))
	w.waitEnd("archive")
	f.waitGone("mail", "archive")
	w.stop()
	if slices.Contains(append(w.starts(), s.ids()...), "delete") {
		t.Error("a task ran that Go had deleted")
	}
	f.limitsOff()
	f.assertOnlyCounters("mail")
}

// A server of Go, one of ours, and somebody with Go's inspector on one queue with limits.
func TestMixedFleetOnAQueueWithLimitsLosesNothing(t *testing.T) {
	t.Parallel()
	const count = 300
	f := newFixture(t)
	f.queuectl("limit", "set", "tenant", "-q", "mail", "--key", "header:tenant", "--concurrency", "1")
	f.queuectl("limit", "set", "all", "-q", "mail", "--key", "queue", "--concurrency", "8")
	want, deleted := map[string]bool{}, map[string]bool{}
	for i := range count {
		id := strconv.Itoa(i)
		want[id] = true
		f.enqueueOf("t"+strconv.Itoa(i%5), "sleep", "20", id)
	}
	// Now: servers that are faster than these calls would leave nothing that waits.
	w := f.startRustWorker(10, []string{"mail=1"})
	s := f.startGoServer(func(c *asynq.Config) { c.Concurrency = 2 }, "mail")
	random := rand.New(rand.NewSource(1))
	f.eventuallyWithin(2*time.Minute, "nothing is left", func() bool {
		f.meddle(random, deleted, true)
		info, err := f.inspector.GetQueueInfo("mail")
		f.do("look at the queue", err)
		return info.Size == 0
	})
	w.stop()
	s.Shutdown()
	byRust, byGo := w.starts(), s.ids()
	runs := map[string]int{}
	for _, id := range append(byRust, byGo...) {
		runs[id]++
	}
	for id := range want {
		if ran := runs[id]; ran > 1 || ran == 0 != deleted[id] {
			t.Errorf("task %s ran %d times, deleted: %v", id, ran, deleted[id])
		}
	}
	if len(byRust) == 0 || len(byGo) == 0 || len(deleted) == 0 {
		t.Errorf("Rust did %d tasks, Go %d, %d were deleted", len(byRust), len(byGo), len(deleted))
	}
	f.limitsOff()
	f.assertOnlyCounters("mail")
}

// meddle does to tasks that wait what Go's tools and forwarder do: it runs some, deletes some and makes some due; with
// archives, it also archives some and runs them again, by which they lose their place in the order of their key.
func (f *fixture) meddle(random *rand.Rand, deleted map[string]bool, archives bool) {
	tasks, err := f.inspector.ListScheduledTasks("mail", asynq.PageSize(1000))
	f.do("list", err)
	for _, task := range tasks {
		choice := random.Intn(8)
		if len(deleted) == 0 {
			choice = 1 // On a busy machine there are few looks at what waits.
		}
		// Another may have been faster, which is no fault.
		switch choice {
		case 0:
			// One that fails may be archived by now, and would be run again.
			if task.Type != "fail" {
				_ = f.inspector.RunTask("mail", task.ID)
			}
		case 1:
			if (len(deleted) == 0 || random.Intn(4) == 0) && f.inspector.DeleteTask("mail", task.ID) == nil {
				deleted[task.ID] = true
			}
		case 2:
			if archives && f.inspector.ArchiveTask("mail", task.ID) == nil {
				f.do("run", f.inspector.RunTask("mail", task.ID))
			}
		case 3:
			past := redis.Z{Score: float64(time.Now().Unix() - 5), Member: task.ID}
			_ = f.rdb.ZAddXX(ctx, queueKey("mail", "scheduled"), past).Err()
		}
	}
}

// Go's client, forwarder and inspector on a queue whose tasks run in the order of their keys.
func TestWhatGoDoesToWaitingTasksLeavesThemInTheirOrder(t *testing.T) {
	t.Parallel()
	const count = 120
	f := newFixture(t)
	f.queuectl("limit", "set", "tenant", "-q", "mail", "--key", "header:tenant", "--order", "strict")
	w := f.startRustWorker(10, []string{"mail=1"}, "--retry-delay-secs", "0")
	for i := range count {
		typ, payload, headers := "sleep", "5", map[string]string{"tenant": "t" + strconv.Itoa(i%3)}
		if i%7 == 0 {
			typ, payload = "fail", "twice"
		}
		f.enqueueTask(asynq.NewTaskWithHeaders(typ, []byte(payload), headers), asynq.Queue("mail"),
			asynq.TaskID(strconv.Itoa(i)), asynq.MaxRetry(1))
	}
	random := rand.New(rand.NewSource(1))
	deleted := map[string]bool{}
	f.eventuallyWithin(2*time.Minute, "nothing waits", func() bool {
		f.meddle(random, deleted, false)
		info, err := f.inspector.GetQueueInfo("mail")
		f.do("look at the queue", err)
		return info.Size == info.Archived
	})
	w.stop()
	last, ran := map[int]int{}, map[int]int{}
	for _, id := range w.starts() {
		number, err := strconv.Atoi(id)
		if err != nil {
			t.Fatal(err)
		}
		if number < last[number%3] {
			t.Errorf("of tenant %d, task %d ran after %d", number%3, number, last[number%3])
		}
		last[number%3] = number
		ran[number]++
	}
	for i := range count {
		want := 1
		if i%7 == 0 {
			want = 2
		}
		if !deleted[strconv.Itoa(i)] && ran[i] != want {
			t.Errorf("task %d ran %d times", i, ran[i])
		}
	}
	_, err := f.inspector.DeleteAllArchivedTasks("mail")
	f.do("delete", err)
	f.limitsOff()
	day := "failed:" + time.Now().UTC().Format(time.DateOnly)
	if err := f.rdb.Del(ctx, queueKey("mail", "failed"), queueKey("mail", day)).Err(); err != nil {
		t.Fatal(err)
	}
	f.assertOnlyCounters("mail")
}

// What waits for its turn under a fair limit is scheduled for Go; a tenant that comes late passes a backlog; and Go works what is left.
func TestGoSeesWhatWaitsForItsTurnAndWorksWhatIsLeft(t *testing.T) {
	t.Parallel()
	const count = 150
	f := newFixture(t)
	f.queuectl("limit", "set", "tenant", "-q", "mail", "--key", "header:tenant", "--fair")
	f.queuectl("limit", "key", "tenant", "big", "-q", "mail", "--weight", "2")
	f.enqueueOf("big", "sleep", "2000", "first")
	var left []string
	for i := range count {
		left = append(left, "big"+strconv.Itoa(i))
	}
	f.enqueueOf("big", "sleep", "50", left...)
	f.enqueueOf("late", "sleep", "50", "late")
	w := f.startRustWorker(1, []string{"mail=1"})
	f.eventually("all but the one that runs are parked", func() bool { return len(f.parked()) == count+1 })
	f.do("delete", f.inspector.DeleteTask("mail", "big149"))
	f.do("run", f.inspector.RunTask("mail", "big148"))
	w.waitEnd("late")
	w.stop()
	starts := w.starts()
	if place := slices.Index(starts, "late"); place < 1 || place > 4 {
		t.Errorf("the tenant that came late started at place %d of %v", place, starts)
	}
	f.limitsOff()
	s := f.startGoServer(nil, "mail")
	f.eventuallyWithin(time.Minute, "nothing is left", func() bool {
		info, err := f.inspector.GetQueueInfo("mail")
		f.do("info", err)
		return info.Size == 0
	})
	s.Shutdown()
	ran := append(w.starts(), s.ids()...)
	for _, id := range append(left, "first", "late") {
		if slices.Contains(ran, id) == (id == "big149") {
			t.Errorf("task %s: ran, or did not, as it should not", id)
		}
	}
	f.assertOnlyCounters("mail")
}
