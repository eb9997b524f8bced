package interop

import (
	"bytes"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
)

// toGo is a task enqueued by Rust, by flags or as a line of a batch, and what
// Go must read. NextProcessAt is only compared for scheduled tasks.
type toGo struct {
	args  []string
	batch batchTask
	want  asynq.TaskInfo
}

var farDeadline = time.Date(2099, 1, 2, 3, 4, 5, 0, time.UTC)

func rustToGoCases() []toGo {
	at := time.Now().Add(2 * time.Hour).Truncate(time.Second).UTC()
	headers := map[string]string{"trace-id": "00-ab", "empty": "", "eq": "a=b", "ключ": "värde"}
	var headerArgs []string
	for key, value := range headers {
		headerArgs = append(headerArgs, "--header", key+"="+value)
	}
	pending := asynq.TaskInfo{
		Queue: "default", Type: "ok", State: asynq.TaskStatePending, MaxRetry: 25, Timeout: 30 * time.Minute,
	}
	from := func(id string, change func(*asynq.TaskInfo)) asynq.TaskInfo {
		info := pending
		info.ID = id
		if change != nil {
			change(&info)
		}
		return info
	}
	return []toGo{
		{nil, batchTask{}, from("no-options", nil)},
		{[]string{"--payload="}, batchTask{Payload: pointer("")}, from("empty-payload", nil)},
		{
			[]string{"--payload", `{"id":1}`}, batchTask{Payload: pointer(`{"id":1}`)},
			from("payload", func(i *asynq.TaskInfo) { i.Payload = []byte(`{"id":1}`) }),
		},
		{headerArgs, batchTask{Headers: headers}, from("headers", func(i *asynq.TaskInfo) { i.Headers = headers })},
		{
			[]string{"--queue", "low"}, batchTask{Queue: "low"},
			from("queue", func(i *asynq.TaskInfo) { i.Queue = "low" }),
		},
		{
			[]string{"--max-retry", "0"}, batchTask{MaxRetry: pointer(0)},
			from("max-retry", func(i *asynq.TaskInfo) { i.MaxRetry = 0 }),
		},
		{
			[]string{"--timeout", "1m30s"}, batchTask{Timeout: "1m30s"},
			from("timeout", func(i *asynq.TaskInfo) { i.Timeout = 90 * time.Second }),
		},
		{
			[]string{"--in", "1h"}, batchTask{In: "1h"}, from("in", func(i *asynq.TaskInfo) {
				i.State, i.NextProcessAt = asynq.TaskStateScheduled, time.Now().Add(time.Hour)
			}),
		},
		{
			[]string{"--at", at.Format(time.RFC3339)}, batchTask{At: at.Format(time.RFC3339)},
			from("at", func(i *asynq.TaskInfo) { i.State, i.NextProcessAt = asynq.TaskStateScheduled, at }),
		},
		{
			[]string{"--unique", "10m", "--payload", "u"}, batchTask{Unique: "10m", Payload: pointer("u")},
			from("unique", func(i *asynq.TaskInfo) { i.Payload = []byte("u") }),
		},
		{
			[]string{"--retention", "24h"}, batchTask{Retention: "24h"},
			from("retention", func(i *asynq.TaskInfo) { i.Retention = 24 * time.Hour }),
		},
		{
			[]string{"--group", "user:7"}, batchTask{Group: "user:7"}, from("group", func(i *asynq.TaskInfo) {
				i.State, i.Group = asynq.TaskStateAggregating, "user:7"
			}),
		},
		{
			append([]string{
				"--queue", "low", "--max-retry", "9", "--timeout", "2m", "--unique", "1h", "--retention", "1h",
				"--in", "1h", "--payload", "every",
			}, headerArgs...),
			batchTask{
				Queue: "low", MaxRetry: pointer(9), Timeout: "2m", Unique: "1h", Retention: "1h", In: "1h",
				Payload: pointer("every"), Headers: headers,
			},
			from("every-option", func(i *asynq.TaskInfo) {
				i.Queue, i.MaxRetry, i.Timeout, i.Retention = "low", 9, 2*time.Minute, time.Hour
				i.Payload, i.Headers = []byte("every"), headers
				i.State, i.NextProcessAt = asynq.TaskStateScheduled, time.Now().Add(time.Hour)
			}),
		},
	}
}

func TestGoWorksWhatRustEnqueues(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	cases := rustToGoCases()
	for _, c := range cases {
		args := append([]string{"--task-id", c.want.ID}, c.args...)
		if id := f.rustEnqueue(c.want.Type, args...); id != c.want.ID {
			t.Errorf("queuectl prints id %q for task %q", id, c.want.ID)
		}
	}
	assertReadAndWorked(f, cases)
}

func TestGoWorksARustBatch(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	cases := rustToGoCases()
	var tasks []batchTask
	for _, c := range cases {
		c.batch.Type, c.batch.TaskID = c.want.Type, c.want.ID
		tasks = append(tasks, c.batch)
	}
	f.rustEnqueueBatch(tasks)
	assertReadAndWorked(f, cases)
}

// A deadline can only be given as a flag.
func TestGoReadsDeadlinesFromRust(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	deadline := farDeadline.Format(time.RFC3339)
	f.rustEnqueue("ok", "--task-id", "alone", "--deadline", deadline)
	if got := f.info("default", "alone"); !got.Deadline.Equal(farDeadline) || got.Timeout != 0 {
		t.Errorf("deadline alone: Go reads deadline %v, timeout %v", got.Deadline, got.Timeout)
	}
	f.rustEnqueue("ok", "--task-id", "both", "--deadline", deadline, "--timeout", "1m")
	if got := f.info("default", "both"); !got.Deadline.Equal(farDeadline) || got.Timeout != time.Minute {
		t.Errorf("both: Go reads deadline %v, timeout %v", got.Deadline, got.Timeout)
	}
	s := f.startGoServer(nil, "default")
	if got := s.waitRun("alone"); !got.deadline.Equal(farDeadline) {
		t.Errorf("alone: the Go handler has deadline %v", got.deadline)
	}
	if got := s.waitRun("both"); time.Until(got.deadline) > time.Minute {
		t.Errorf("both: the Go handler has deadline %v", got.deadline)
	}
}

func TestRustMakesAnIDWhenNoneIsGiven(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	first, second := f.rustEnqueue("ok"), f.rustEnqueue("ok")
	if first == second || strings.TrimSpace(first) == "" {
		t.Errorf("ids %q and %q", first, second)
	}
	f.info("default", first)
	f.info("default", second)
}

// assertReadAndWorked compares what the Go inspector reads, then lets a Go
// server run everything.
func assertReadAndWorked(f *fixture, cases []toGo) {
	f.t.Helper()
	for _, c := range cases {
		assertInfo(f, f.info(c.want.Queue, c.want.ID), c.want)
		if c.want.State != asynq.TaskStatePending {
			if err := f.inspector.RunTask(c.want.Queue, c.want.ID); err != nil {
				f.t.Errorf("%s: Go runs it early: %v", c.want.ID, err)
			}
		}
	}
	s := f.startGoServer(nil, "default", "low")
	for _, c := range cases {
		got := s.waitRun(c.want.ID)
		if got.queue != c.want.Queue || got.maxRetry != c.want.MaxRetry || got.retried != 0 ||
			!bytes.Equal(got.payload, c.want.Payload) || !maps.Equal(got.headers, c.want.Headers) {
			f.t.Errorf("%s: the Go handler saw %+v", c.want.ID, got)
		}
		if c.want.Retention > 0 {
			f.waitState(c.want.Queue, c.want.ID, asynq.TaskStateCompleted)
		} else {
			f.waitGone(c.want.Queue, c.want.ID)
		}
	}
	if ids := s.ids(); len(ids) != len(cases) {
		f.t.Errorf("Go ran %d handlers for %d tasks: %q", len(ids), len(cases), ids)
	}
}
