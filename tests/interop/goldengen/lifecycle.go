package main

import (
	"fmt"
	"maps"
	"reflect"
	"strings"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"queue.test/interop/internal/wire"
)

// lifeCase is a task that a Go server takes to some state.
type lifeCase struct {
	name    string
	typ     string
	payload string
	headers map[string]string
	opts    []asynq.Option
	state   string
	want    wire.Fields
	// prepare runs between enqueue and the start of the server.
	prepare func(r *recorder, id string) error
	// nudge runs while the server works, until the state is reached.
	nudge func(r *recorder, id string) error
}

// failed are the fields of a task that failed once with this text.
func failed(text string) wire.Fields {
	return wire.Fields{"error_msg": text, "retried": int64(1), "completed_at": int64(0)}
}

// uncounted are the fields after a failure that did not raise the count.
func uncounted(text string) wire.Fields {
	return wire.Fields{"error_msg": text, "retried": int64(0), "completed_at": int64(0)}
}

func lifeCases() []lifeCase {
	long := strings.Repeat("a long error text ", 60)
	kept := asynq.Retention(time.Hour)
	headers := map[string]string{"trace-id": "abc"}
	return []lifeCase{
		{name: "retry", typ: "fail", payload: "boom", state: "retry", want: failed("boom")},
		{
			name: "retry_with_headers", typ: "fail", payload: "boom", headers: headers, state: "retry",
			want: wire.Fields{"headers": headers, "retried": int64(1)},
		},
		{name: "retry_unicode_error", typ: "fail", payload: "ошибка 🐛", state: "retry", want: failed("ошибка 🐛")},
		{name: "retry_error_with_lines", typ: "fail", payload: "a\n\tb\n", state: "retry", want: failed("a\n\tb\n")},
		{name: "retry_empty_error", typ: "fail", state: "retry", want: failed("")},
		{name: "retry_long_error", typ: "fail", payload: long, state: "retry", want: failed(long)},
		{
			name: "retry_third_time", typ: "again", payload: "again", state: "retry",
			want: wire.Fields{"retried": int64(3), "error_msg": "again"},
		},
		{name: "retry_without_penalty", typ: "soft", state: "retry", want: uncounted(errSoft.Error())},
		{
			name: "retry_timed_out", typ: "hang", state: "retry",
			opts: []asynq.Option{asynq.Timeout(time.Second)}, want: failed("context deadline exceeded"),
		},
		{
			name: "retry_canceled", typ: "hang", state: "retry", want: failed("context canceled"),
			nudge: func(r *recorder, id string) error { return r.inspector.CancelProcessing(id) },
		},
		{name: "retry_no_handler", typ: "nobody", state: "retry", want: failed(`handler not found for task "nobody"`)},
		{
			name: "retry_unique", typ: "fail", payload: "u", state: "retry",
			opts: []asynq.Option{asynq.Unique(time.Hour)}, want: failed("u"),
		},
		{
			name: "retry_grouped", typ: "fail", payload: "g", state: "retry",
			opts: []asynq.Option{asynq.Group("g")}, want: failed("g"),
			prepare: func(r *recorder, id string) error { return r.inspector.RunTask("default", id) },
		},
		{
			name: "retry_lease_expired", typ: "hang", state: "retry",
			want: failed("asynq: task lease expired"), prepare: abandon,
		},
		{
			name: "archived_exhausted", typ: "fail", payload: "boom", state: "archived",
			opts: []asynq.Option{asynq.MaxRetry(0)}, want: uncounted("boom"),
		},
		{
			name: "archived_after_retries", typ: "again", payload: "again", state: "archived",
			opts: []asynq.Option{asynq.MaxRetry(2)},
			want: wire.Fields{"retried": int64(2), "error_msg": "again"},
		},
		{
			name: "archived_skip_retry", typ: "skip", payload: "bad input", state: "archived",
			want: uncounted("bad input: skip retry for the task"),
		},
		{
			name: "archived_without_penalty", typ: "soft", state: "archived",
			opts: []asynq.Option{asynq.MaxRetry(0)}, want: uncounted(errSoft.Error()),
		},
		{
			name: "archived_lease_expired", typ: "hang", state: "archived",
			opts: []asynq.Option{asynq.MaxRetry(0)},
			want: uncounted("asynq: task lease expired"), prepare: abandon,
		},
		{name: "completed", typ: "ok", state: "completed", opts: []asynq.Option{kept}},
		{
			name: "completed_with_result", typ: "result", payload: "\x00\xff result", headers: headers,
			state: "completed", opts: []asynq.Option{kept}, want: wire.Fields{"headers": headers},
		},
		{
			name: "completed_after_retry", typ: "flaky", state: "completed",
			opts: []asynq.Option{kept}, want: wire.Fields{"error_msg": "first time", "retried": int64(1)},
		},
		{
			name: "completed_unique", typ: "ok", payload: "u", state: "completed",
			opts: []asynq.Option{kept, asynq.Unique(time.Hour)},
			want: wire.Fields{"unique_key": uniqueKey("default", "ok", []byte("u"))},
		},
		{name: "active", typ: "stubborn", state: "active"},
	}
}

// abandon leaves a task as a server does that was killed a while ago.
func abandon(r *recorder, id string) error {
	if err := r.rdb.LRem(ctx, queueKey("default", "pending"), 1, id).Err(); err != nil {
		return err
	}
	_, err := r.rdb.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
		pipe.LPush(ctx, queueKey("default", "active"), id)
		pipe.HSet(ctx, taskKey("default", id), "state", "active")
		pipe.HDel(ctx, taskKey("default", id), "pending_since")
		pipe.ZAdd(ctx, queueKey("default", "lease"), redis.Z{
			Score: float64(time.Now().Add(-time.Minute).Unix()), Member: id,
		})
		return nil
	})
	return err
}

func (r *recorder) recordLifecycle() error {
	// The tasks of the earlier cases are none of this server's business.
	if err := r.rdb.FlushAll(ctx).Err(); err != nil {
		return err
	}
	r.client.Close()
	r.client = asynq.NewClient(r.opt)

	cases := lifeCases()
	started := time.Now().Unix()
	for _, c := range cases {
		task := asynq.NewTaskWithHeaders(c.typ, []byte(c.payload), c.headers)
		opts := append([]asynq.Option{asynq.TaskID(c.name)}, c.opts...)
		if _, err := r.client.Enqueue(task, opts...); err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		if c.prepare != nil {
			if err := c.prepare(r, c.name); err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
		}
	}
	server := r.newServer(asynq.Config{Concurrency: 10, ShutdownTimeout: time.Millisecond})
	if err := server.Start(handlers()); err != nil {
		return err
	}
	defer server.Shutdown()
	for _, c := range cases {
		if err := r.recordLife(c, started); err != nil {
			return err
		}
	}
	server.Shutdown()
	return r.recordByHand()
}

// recordLife waits for the task to arrive and checks the times it got.
func (r *recorder) recordLife(c lifeCase, started int64) error {
	want := maps.Clone(c.want)
	if want == nil {
		want = wire.Fields{}
	}
	want["type"], want["id"] = c.typ, c.name
	arrived := func() (bool, error) {
		if c.nudge != nil {
			if err := c.nudge(r, c.name); err != nil {
				return false, err
			}
		}
		return r.arrived(c.name, c.state, want)
	}
	if err := wait(c.name+" is "+c.state, arrived); err != nil {
		return err
	}
	if err := r.addTask("lifecycle/"+c.name, "default", c.name, c.state, want); err != nil {
		return err
	}
	fields := r.vectors[len(r.vectors)-1].Fields
	for key, expected := range map[string]bool{
		"last_failed_at": c.state != "active" && (c.state != "completed" || fields["error_msg"] != ""),
		"completed_at":   c.state == "completed",
	} {
		at := fields[key].(int64)
		if expected && (at < started || at > time.Now().Unix()) || !expected && at != 0 {
			return fmt.Errorf("%s: %s is %d", c.name, key, at)
		}
	}
	return nil
}

func (r *recorder) arrived(id, state string, want wire.Fields) (bool, error) {
	hash, err := r.rdb.HGetAll(ctx, taskKey("default", id)).Result()
	if err != nil || hash["state"] != state {
		return false, err
	}
	fields, err := wire.TaskMessage.Decode([]byte(hash["msg"]))
	if err != nil {
		return false, err
	}
	for key, value := range want {
		if !reflect.DeepEqual(fields[key], value) {
			return false, nil
		}
	}
	return true, nil
}

// recordByHand records what an inspector and a shutdown leave behind. The
// server is down by now.
func (r *recorder) recordByHand() error {
	if err := r.addTask("lifecycle/requeued_by_shutdown", "default", "active", "pending",
		wire.Fields{"retried": int64(0), "error_msg": ""}); err != nil {
		return err
	}
	moves := []struct {
		name, state string
		move        func(queue, id string) error
		opts        []asynq.Option
	}{
		{"run_by_inspector", "pending", r.inspector.RunTask, []asynq.Option{asynq.ProcessAt(soon)}},
		{"archived_by_inspector", "archived", r.inspector.ArchiveTask, nil},
	}
	for _, m := range moves {
		opts := append(m.opts, asynq.TaskID(m.name))
		if _, err := r.client.Enqueue(asynq.NewTask("ok", nil), opts...); err != nil {
			return err
		}
		if err := m.move("default", m.name); err != nil {
			return err
		}
		if err := r.addTask("lifecycle/"+m.name, "default", m.name, m.state,
			wire.Fields{"error_msg": "", "last_failed_at": int64(0)}); err != nil {
			return err
		}
	}
	return nil
}
