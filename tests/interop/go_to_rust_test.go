package interop

import (
	"bytes"
	"maps"
	"strconv"
	"testing"
	"time"

	"github.com/hibiken/asynq"
)

// toRust is a task a Go client enqueues, and what the Rust handler must see.
type toRust struct {
	name     string
	queue    string
	payload  []byte
	headers  map[string]string
	opts     []asynq.Option
	maxRetry int
	// timeout is the time from start to deadline, if deadline is not set.
	timeout  time.Duration
	deadline time.Time
}

func goToRustCases() []toRust {
	farAway := time.Now().Add(48 * time.Hour).Truncate(time.Second)
	inTenMinutes := time.Now().Add(10 * time.Minute).Truncate(time.Second)
	headers := map[string]string{"trace-id": "00-ab", "empty": "", "ключ": "värde"}
	const half = 30 * time.Minute
	return []toRust{
		{name: "no-options", maxRetry: 25, timeout: half},
		{name: "empty-payload", payload: []byte{}, maxRetry: 25, timeout: half},
		{name: "binary-payload", payload: []byte("\x00\xff\xfe{"), maxRetry: 25, timeout: half},
		{name: "headers", headers: headers, maxRetry: 25, timeout: half},
		{name: "queue", queue: "low", opts: []asynq.Option{asynq.Queue("low")}, maxRetry: 25, timeout: half},
		{name: "max-retry", opts: []asynq.Option{asynq.MaxRetry(3)}, maxRetry: 3, timeout: half},
		{name: "max-retry-zero", opts: []asynq.Option{asynq.MaxRetry(0)}, timeout: half},
		{name: "timeout", opts: []asynq.Option{asynq.Timeout(45 * time.Second)}, maxRetry: 25, timeout: 45 * time.Second},
		{name: "deadline", opts: []asynq.Option{asynq.Deadline(farAway)}, maxRetry: 25, deadline: farAway},
		{
			name: "deadline-before-timeout", maxRetry: 25, deadline: inTenMinutes,
			opts: []asynq.Option{asynq.Deadline(inTenMinutes), asynq.Timeout(time.Hour)},
		},
		{
			name: "timeout-before-deadline", maxRetry: 25, timeout: time.Minute,
			opts: []asynq.Option{asynq.Deadline(farAway), asynq.Timeout(time.Minute)},
		},
		{name: "unique", payload: []byte("u"), opts: []asynq.Option{asynq.Unique(time.Hour)}, maxRetry: 25, timeout: half},
		{name: "process-in", opts: []asynq.Option{asynq.ProcessIn(time.Second)}, maxRetry: 25, timeout: half},
		{
			name: "process-at-unique", payload: []byte("v"), maxRetry: 25, timeout: half,
			opts: []asynq.Option{asynq.ProcessAt(time.Now().Add(2 * time.Second)), asynq.Unique(time.Hour)},
		},
		// No aggregator runs; the test runs it by hand.
		{name: "group", opts: []asynq.Option{asynq.Group("g")}, maxRetry: 25, timeout: half},
		{name: "id with: {odd} чars", maxRetry: 25, timeout: half},
		{
			name: "every-option", queue: "low", payload: []byte(`{"every":1}`), headers: headers, maxRetry: 9,
			timeout: 2 * time.Minute,
			opts: []asynq.Option{
				asynq.Queue("low"), asynq.MaxRetry(9), asynq.Timeout(2 * time.Minute), asynq.Deadline(farAway),
				asynq.Unique(time.Hour), asynq.ProcessIn(time.Second), asynq.Group("late"),
			},
		},
	}
}

func TestRustWorksWhatGoEnqueues(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	cases := goToRustCases()
	perQueue := map[string]int{}
	for i := range cases {
		c := &cases[i]
		if c.queue == "" {
			c.queue = "default"
		}
		perQueue[c.queue]++
		task := asynq.NewTaskWithHeaders("ok", c.payload, c.headers)
		f.enqueueTask(task, append([]asynq.Option{asynq.TaskID(c.name)}, c.opts...)...)
	}
	if err := f.inspector.RunTask("default", "group"); err != nil {
		t.Fatal(err)
	}
	w := f.startRustWorker(4, []string{"default=3", "low=1"})
	for _, c := range cases {
		started := w.waitStart(c.name)
		assertSeen(f, c, started)
		w.waitEnd(c.name)
		f.waitGone(c.queue, c.name)
	}
	w.stop()
	if got := len(w.starts()); got != len(cases) {
		t.Errorf("Rust started %d handlers for %d tasks", got, len(cases))
	}
	f.assertOnlyCounters("default", "low")
	for queue, n := range perQueue {
		f.assertCount(queue, "processed", strconv.Itoa(n))
	}
}

func assertSeen(f *fixture, c toRust, got event) {
	f.t.Helper()
	if got.Type != "ok" || got.Queue != c.queue || got.Retried != 0 || got.MaxRetry != c.maxRetry {
		f.t.Errorf("%s: Rust saw %+v", c.name, got)
	}
	if payload := got.payload(f); !bytes.Equal(payload, c.payload) {
		f.t.Errorf("%s: Rust saw payload %q, want %q", c.name, payload, c.payload)
	}
	if !maps.Equal(got.Headers, c.headers) {
		f.t.Errorf("%s: Rust saw headers %q, want %q", c.name, got.Headers, c.headers)
	}
	want := c.deadline
	if want.IsZero() {
		want = time.Unix(0, got.TimeNs).Add(c.timeout)
	}
	if off := got.DeadlineUnix - want.Unix(); off < -2 || off > 2 {
		f.t.Errorf("%s: the deadline Rust saw is %d s off", c.name, off)
	}
}
