package main

import (
	"bytes"
	"crypto/md5"
	"encoding/hex"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/hibiken/asynq"

	"queue.test/interop/internal/wire"
)

// enqueuedCase is a task as given to the Go client, and what differs from a
// task with no options at all.
type enqueuedCase struct {
	name    string
	typ     string
	payload []byte
	headers map[string]string
	opts    []asynq.Option
	state   string
	want    wire.Fields
}

// Far enough away that the tasks are still in the future when read.
var soon = time.Now().Add(time.Hour).Truncate(time.Second)

func enqueuedCases() []enqueuedCase {
	allBytes := make([]byte, 256)
	for i := range allBytes {
		allBytes[i] = byte(i)
	}
	return []enqueuedCase{
		{name: "minimal", typ: "t", want: wire.Fields{"retry": int64(25), "timeout": int64(1800)}},
		{name: "payload_empty", typ: "t", payload: []byte{}},
		{name: "payload_json", typ: "email:send", payload: []byte(`{"id":1}`)},
		{name: "payload_all_bytes", typ: "t", payload: allBytes},
		{name: "payload_length_two_bytes", typ: "t", payload: bytes.Repeat([]byte("x"), 300)},
		{name: "payload_length_three_bytes", typ: "t", payload: bytes.Repeat([]byte("y"), 16_384)},
		{
			name: "unicode_everywhere", typ: "почта:отправить",
			payload: []byte(`{"текст":"привет 🌍"}`),
			headers: map[string]string{"ключ-é": "värde 日本"},
			opts:    []asynq.Option{asynq.Queue("очередь"), asynq.TaskID("标识-1"), asynq.Group("группа 🐛")},
			state:   "aggregating",
			want:    wire.Fields{"queue": "очередь", "id": "标识-1", "group_key": "группа 🐛"},
		},
		{
			name: "awkward_names", typ: "a b:c{d}\n\"e\"",
			opts: []asynq.Option{asynq.Queue("q:1{x}"), asynq.TaskID("id with: {spaces}")},
			want: wire.Fields{"queue": "q:1{x}", "id": "id with: {spaces}"},
		},
		{name: "headers_one", typ: "t", headers: map[string]string{"trace-id": "abc"}},
		{name: "headers_empty_value", typ: "t", headers: map[string]string{"flag": ""}},
		{name: "headers_empty_key", typ: "t", headers: map[string]string{"": "v"}},
		{name: "headers_many", typ: "t", headers: map[string]string{"a": "1", "b": "2", "c": "3", "d": "", "e": "5"}},
		{name: "headers_empty_map", typ: "t", headers: map[string]string{}},
		{
			name: "unique_with_payload", typ: "u", payload: []byte(`{"id":1}`),
			opts: []asynq.Option{asynq.Unique(time.Hour)},
			want: wire.Fields{"unique_key": uniqueKey("default", "u", []byte(`{"id":1}`))},
		},
		{
			name: "unique_nil_payload", typ: "u",
			opts: []asynq.Option{asynq.Unique(90 * time.Second)},
			want: wire.Fields{"unique_key": "asynq:{default}:unique:u:"},
		},
		{
			name: "unique_empty_payload", typ: "u", payload: []byte{},
			opts: []asynq.Option{asynq.Unique(time.Hour)},
			want: wire.Fields{"unique_key": "asynq:{default}:unique:u:d41d8cd98f00b204e9800998ecf8427e"},
		},
		{
			name: "unique_scheduled", typ: "u", payload: []byte("later"), state: "scheduled",
			opts: []asynq.Option{asynq.Unique(time.Minute), asynq.ProcessAt(soon)},
			want: wire.Fields{"unique_key": uniqueKey("default", "u", []byte("later"))},
		},
		{
			name: "unique_grouped", typ: "u", payload: []byte("grouped"), state: "aggregating",
			opts: []asynq.Option{asynq.Unique(time.Minute), asynq.Group("g1")},
			want: wire.Fields{"unique_key": uniqueKey("default", "u", []byte("grouped")), "group_key": "g1"},
		},
		{
			name: "grouped", typ: "t", state: "aggregating",
			opts: []asynq.Option{asynq.Group("user:7:mail")},
			want: wire.Fields{"group_key": "user:7:mail"},
		},
		{name: "scheduled_at", typ: "t", state: "scheduled", opts: []asynq.Option{asynq.ProcessAt(soon)}},
		{name: "scheduled_in", typ: "t", state: "scheduled", opts: []asynq.Option{asynq.ProcessIn(time.Hour)}},
		{name: "process_at_past", typ: "t", opts: []asynq.Option{asynq.ProcessAt(time.Unix(1, 0))}},
		{
			// A group option is only remembered in the message here.
			name: "scheduled_and_grouped", typ: "t", state: "scheduled",
			opts: []asynq.Option{asynq.ProcessAt(soon), asynq.Group("g2")},
			want: wire.Fields{"group_key": "g2"},
		},
		{
			name: "every_option", typ: "every:option", payload: []byte(`{"a":[1,2,3]}`),
			headers: map[string]string{"trace": "00-1"}, state: "scheduled",
			opts: []asynq.Option{
				asynq.Queue("low"), asynq.TaskID("every-option"), asynq.MaxRetry(7),
				asynq.Timeout(90 * time.Second), asynq.Deadline(time.Unix(4_102_444_800, 0)),
				asynq.Unique(10 * time.Minute), asynq.Retention(48 * time.Hour),
				asynq.Group("g3"), asynq.ProcessAt(soon),
			},
			want: wire.Fields{
				"queue": "low", "id": "every-option", "retry": int64(7), "timeout": int64(90),
				"deadline": int64(4_102_444_800), "retention": int64(172_800), "group_key": "g3",
				"unique_key": uniqueKey("low", "every:option", []byte(`{"a":[1,2,3]}`)),
			},
		},
		{
			name: "last_option_wins", typ: "t",
			opts: []asynq.Option{asynq.Queue("low"), asynq.MaxRetry(1), asynq.Queue("high"), asynq.MaxRetry(2)},
			want: wire.Fields{"queue": "high", "retry": int64(2)},
		},
	}
}

// recordEnqueued enqueues every case and reads it back.
func (r *recorder) recordEnqueued(cases []enqueuedCase) error {
	for _, c := range cases {
		task := asynq.NewTask(c.typ, c.payload)
		if c.headers != nil {
			task = asynq.NewTaskWithHeaders(c.typ, c.payload, c.headers)
		}
		info, err := r.client.Enqueue(task, c.opts...)
		if err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
		want := wire.Fields{
			"type": c.typ, "payload": wire.Hex(c.payload), "id": info.ID, "queue": "default",
			"retry": int64(25), "retried": int64(0), "error_msg": "", "timeout": int64(1800),
			"deadline": int64(0), "unique_key": "", "last_failed_at": int64(0),
			"retention": int64(0), "completed_at": int64(0), "group_key": "",
			"headers": map[string]string{},
		}
		if len(c.payload) == 0 {
			want["payload"] = wire.Hex(nil)
		}
		if c.headers != nil {
			want["headers"] = c.headers
		}
		maps.Copy(want, c.want)
		state := c.state
		if state == "" {
			state = "pending"
		}
		if err := r.addTask("enqueued/"+c.name, info.Queue, info.ID, state, want); err != nil {
			return err
		}
	}
	return nil
}

func uniqueKey(queue, typ string, payload []byte) string {
	sum := md5.Sum(payload)
	return strings.Join([]string{"asynq:{" + queue + "}", "unique", typ, hex.EncodeToString(sum[:])}, ":")
}
