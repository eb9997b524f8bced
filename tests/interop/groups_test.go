package interop

import (
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
)

// goAggregator records what it joins.
type goAggregator struct {
	mu     sync.Mutex
	joined map[string][]string
}

// Aggregate joins payloads into those of a task ok, as the Rust worker does.
func (a *goAggregator) Aggregate(group string, tasks []*asynq.Task) *asynq.Task {
	var payloads []string
	for _, task := range tasks {
		payloads = append(payloads, string(task.Payload()))
	}
	joined := strings.Join(payloads, ",")
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.joined == nil {
		a.joined = map[string][]string{}
	}
	a.joined[group] = append(a.joined[group], joined)
	return asynq.NewTask("ok", []byte(joined))
}

func (a *goAggregator) aggregates(group string) []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.joined[group])
}

// startGoAggregator starts a Go server with handlers and an aggregator.
func (f *fixture) startGoAggregator(maxSize int) (*goServer, *goAggregator) {
	f.t.Helper()
	aggregator := &goAggregator{}
	server := f.startGoServer(func(c *asynq.Config) {
		c.GroupGracePeriod = time.Second
		c.GroupMaxSize = maxSize
		c.GroupAggregator = aggregator
	}, "default")
	return server, aggregator
}

func (f *fixture) startRustAggregator(graceSecs int) *rustWorker {
	f.t.Helper()
	return f.startRustWorker(4, []string{"default=1"}, "--group-grace-secs", strconv.Itoa(graceSecs))
}

func (f *fixture) score(key, member string) (float64, bool) {
	f.t.Helper()
	score, err := f.rdb.ZScore(ctx, key, member).Result()
	if err != nil && err != redis.Nil {
		f.t.Fatal(err)
	}
	return score, err == nil
}

func (f *fixture) listed(group string) bool {
	f.t.Helper()
	listed, err := f.rdb.SIsMember(ctx, queueKey("default", "groups"), group).Result()
	if err != nil {
		f.t.Fatal(err)
	}
	return listed
}

// loseSet waits for the only aggregation set, and lets it look as it does
// after its deadline.
func (f *fixture) loseSet() {
	f.t.Helper()
	sets := queueKey("default", "aggregation_sets")
	f.eventually("a group is being aggregated", func() bool { return f.rdb.ZCard(ctx, sets).Val() == 1 })
	set := f.rdb.ZRangeWithScores(ctx, sets, 0, 0).Val()[0]
	left := int64(set.Score) - time.Now().Unix()
	if left < 60 || left > 121 {
		f.t.Errorf("the set has %d s left", left)
	}
	set.Score = float64(time.Now().Add(-time.Second).Unix())
	if err := f.rdb.ZAddXX(ctx, sets, set).Err(); err != nil {
		f.t.Fatal(err)
	}
}

func TestGoAggregatesWhatRustAdds(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.rustEnqueue("job", "--payload=a", "--group", "user:7", "--task-id", "a")
	f.rustEnqueue("job", "--payload=b", "--group", "user:7", "--task-id", "b", "--unique", "1h")
	if got, err := f.inspector.Groups("default"); err != nil || len(got) != 1 || got[0].Group != "user:7" {
		t.Errorf("Go lists the groups %v: %v", got, err)
	}
	tasks, err := f.inspector.ListAggregatingTasks("default", "user:7")
	if err != nil || len(tasks) != 2 || tasks[0].Group != "user:7" {
		t.Errorf("Go lists the tasks %v: %v", tasks, err)
	}
	server, aggregator := f.startGoAggregator(0)
	f.eventually("Go has aggregated the group", func() bool { return len(aggregator.aggregates("user:7")) == 1 })
	if got := aggregator.aggregates("user:7")[0]; got != "a,b" {
		t.Errorf("Go joined %q", got)
	}
	f.eventually("Go has run the aggregate", func() bool { return f.get(queueKey("default", "processed")) == "1" })
	f.eventually("no set is left", func() bool { return !f.exists(queueKey("default", "aggregation_sets")) })
	server.Shutdown()
}

// TestAScheduledTaskOfAGroupIsNeverStranded: Go's forwarder would put it into
// a group that nobody visits, if it found the group where Go looks for it.
func TestAScheduledTaskOfAGroupIsNeverStranded(t *testing.T) {
	t.Parallel()
	t.Run("Go forwards it", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		f.rustEnqueue("ok", "--task-id", "late", "--payload=late", "--group", "late", "--in", "1s")
		server, aggregator := f.startGoAggregator(0)
		// As Go does with its own.
		if run := server.waitRun("late"); string(run.payload) != "late" {
			t.Errorf("Go runs it with %q", run.payload)
		}
		if got := aggregator.aggregates("late"); len(got) != 0 {
			t.Errorf("Go has aggregated %q", got)
		}
	})
	t.Run("Rust forwards it", func(t *testing.T) {
		t.Parallel()
		f := newFixture(t)
		f.rustEnqueue("ok", "--payload=late", "--group", "late", "--in", "1s")
		if got, err := f.inspector.Groups("default"); err != nil || len(got) != 0 {
			t.Errorf("Go lists the groups %v: %v", got, err)
		}
		w := f.startRustAggregator(1)
		f.eventually("Rust has aggregated it", func() bool { return slices.Equal(w.aggregates("late"), []string{"late"}) })
	})
}

func TestRustAggregatesWhatGoAdds(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.enqueue("job", []byte("a"), asynq.Group("user:7"), asynq.TaskID("a"))
	f.enqueue("job", []byte("b"), asynq.Group("user:7"), asynq.TaskID("b"), asynq.Unique(time.Hour))
	f.enqueue("job", []byte("other"), asynq.Group("other"))
	w := f.startRustAggregator(1)
	f.eventually("Rust has aggregated both groups", func() bool {
		return slices.Equal(w.aggregates("user:7"), []string{"a,b"}) && slices.Equal(w.aggregates("other"), []string{"other"})
	})
	f.eventually("Rust has run both aggregates", func() bool { return f.get(queueKey("default", "processed")) == "2" })
	w.stop()
	f.assertOnlyCounters("default")
}

func TestAggregatorsOfBothSidesAggregateEachTaskOnce(t *testing.T) {
	t.Parallel()
	const half, groups = 210, 8
	f := newFixture(t)
	// Go takes what is full while tasks come; then Rust is the first to see
	// that it is quiet.
	server, aggregator := f.startGoAggregator(5)
	w := f.startRustAggregator(2)
	var fromRust []batchTask
	want := map[string]bool{}
	for i := range half {
		name := "g" + strconv.Itoa(i%groups)
		payload := "rust-" + strconv.Itoa(i)
		fromRust = append(fromRust, batchTask{Type: "job", Payload: pointer(payload), Group: name})
		want[payload] = true
		want["go-"+strconv.Itoa(i)] = true
	}
	var both sync.WaitGroup
	both.Add(1)
	go func() {
		defer both.Done()
		for i := range half {
			name := "g" + strconv.Itoa(i%groups)
			task := asynq.NewTask("job", []byte("go-"+strconv.Itoa(i)))
			if _, err := f.client.Enqueue(task, asynq.Group(name)); err != nil {
				t.Errorf("Go enqueues: %v", err)
				return
			}
			// So that neither side finds everything at its first look.
			time.Sleep(10 * time.Millisecond)
		}
	}()
	f.rustEnqueueBatch(fromRust)
	both.Wait()
	f.eventuallyWithin(time.Minute, "no task is left", func() bool {
		return len(f.rdb.Keys(ctx, taskKey("default", "*")).Val()) == 0
	})
	seen := map[string]int{}
	var byRust, byGo int
	for i := range groups {
		name := "g" + strconv.Itoa(i)
		rust, golang := w.aggregates(name), aggregator.aggregates(name)
		byRust += len(rust)
		byGo += len(golang)
		for _, joined := range append(rust, golang...) {
			for _, payload := range strings.Split(joined, ",") {
				seen[payload]++
			}
		}
	}
	for payload := range want {
		if seen[payload] != 1 {
			t.Errorf("%s was aggregated %d times", payload, seen[payload])
		}
	}
	if len(seen) != len(want) {
		t.Errorf("%d tasks were aggregated, %d enqueued", len(seen), len(want))
	}
	if byRust == 0 || byGo == 0 {
		t.Errorf("Rust did %d aggregates and Go %d", byRust, byGo)
	}
	w.stop()
	server.Shutdown()
	f.assertOnlyCounters("default")
}

func TestRustReclaimsTheSetOfAKilledGoServer(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.enqueue("job", []byte("a"), asynq.Group("g"), asynq.TaskID("a"))
	f.enqueue("job", []byte("b"), asynq.Group("g"), asynq.TaskID("b"), asynq.Unique(time.Hour))
	kill := f.startGoProcess()
	sets := queueKey("default", "aggregation_sets")
	f.eventually("Go aggregates", func() bool { return f.rdb.ZCard(ctx, sets).Val() == 1 })
	if f.listed("g") {
		t.Error("the group is listed although it is empty")
	}
	kill()
	f.loseSet()

	// Without an aggregator: it only puts back.
	w := f.startRustWorker(1, []string{"default=1"})
	f.eventually("the group is listed again", func() bool { return f.listed("g") })
	w.stop()
	tasks, err := f.inspector.ListAggregatingTasks("default", "g")
	if err != nil || len(tasks) != 2 {
		t.Errorf("Go lists the tasks %v: %v", tasks, err)
	}
	if f.exists(sets) {
		t.Error("the lost set is still listed")
	}
	w = f.startRustAggregator(1)
	f.eventually("Rust has run the aggregate", func() bool { return f.get(queueKey("default", "processed")) == "1" })
	if got := w.aggregates("g"); !slices.Equal(got, []string{"a,b"}) {
		t.Errorf("Rust joined %q", got)
	}
	w.stop()
	// What the killed server tells of itself expires.
	for _, key := range f.keys() {
		if isOfServer(key) {
			f.rdb.Del(ctx, key)
		}
	}
	f.assertOnlyCounters("default")
}

func TestGoReclaimsTheSetOfAKilledRustWorker(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.enqueue("job", []byte("a"), asynq.Group("hang"), asynq.TaskID("a"))
	f.rustEnqueue("job", "--payload=b", "--group", "hang", "--task-id", "b")
	w := f.startRustAggregator(1)
	w.wait("the aggregate", func(e event) bool { return e.Event == "aggregate" })
	// While they are staged, Go's tools cannot touch them, as with Go's own sets.
	for _, id := range []string{"a", "b"} {
		if err := f.inspector.DeleteTask("default", id); err == nil {
			t.Errorf("Go deletes the staged task %s", id)
		}
	}
	w.kill()
	f.loseSet()
	server, aggregator := f.startGoAggregator(0)
	f.eventually("Go has put the tasks back", func() bool {
		_, a := f.score(queueKey("default", "g:hang"), "a")
		_, b := f.score(queueKey("default", "g:hang"), "b")
		return a && b
	})
	// Go does not list the group (W19); one more task does.
	f.enqueue("job", []byte("c"), asynq.Group("hang"), asynq.TaskID("c"))
	f.eventually("Go has aggregated all", func() bool { return slices.Equal(aggregator.aggregates("hang"), []string{"a,b,c"}) })
	server.Shutdown()
}

func TestAGroupThatGoPutBackIsListedByARustWorkerWithoutANewTask(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	// Two sets: one that Rust reclaims, so that the test knows that it has
	// looked, and one that Go reclaims.
	kill := f.startGoProcess()
	for _, group := range []string{"seen", "g"} {
		f.enqueue("job", []byte(group), asynq.Group(group), asynq.TaskID(group))
	}
	sets := queueKey("default", "aggregation_sets")
	f.eventually("Go aggregates both", func() bool { return f.rdb.ZCard(ctx, sets).Val() == 2 })
	kill()
	expire := func(group string) {
		for _, set := range f.rdb.ZRange(ctx, sets, 0, -1).Val() {
			if strings.HasPrefix(set, queueKey("default", "g:"+group+":")) {
				f.rdb.ZAddXX(ctx, sets, redis.Z{Score: float64(time.Now().Add(-time.Second).Unix()), Member: set})
			}
		}
	}
	expire("seen")
	w := f.startRustWorker(1, []string{"default=1"})
	f.eventually("Rust has put one back", func() bool { return f.listed("seen") })
	expire("g")
	// Its recoverer runs as it starts, and may be slower than Rust's; either
	// way the group has to be listed in the end.
	server := f.startGoServer(nil, "default")
	f.eventually("the other group is listed", func() bool { return f.listed("g") })
	w.stop()
	server.Shutdown()
}
