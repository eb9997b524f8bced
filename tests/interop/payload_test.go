package interop

import (
	"bytes"
	"encoding/json"
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/hibiken/asynq"
)

// payloads are what Go programs put into tasks: mostly json.Marshal's output.
func payloads(t *testing.T) [][]byte {
	t.Helper()
	values := []any{
		nil, true, 0, -1, math.MaxInt64, uint64(math.MaxUint64), 1.5e300, "text", "", "<a href=\"x\">&</a>",
		"line\u2028and\u2029\x00\x1f", "мир 🌍 日本", []int{}, []any{1, "a", nil}, map[string]any{},
		map[string]any{"z": 1, "a": map[string]any{"deep": []any{}}, "": nil},
		struct {
			UserID int64  `json:"user_id"`
			Email  string `json:"email,omitempty"`
			Data   []byte `json:"data"`
		}{1 << 60, "", []byte{0, 255}},
		strings.Repeat("long ", 20_000),
	}
	var out [][]byte
	for _, value := range values {
		data, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, data)
	}
	return append(out,
		[]byte("{\n\t\"indented\" : 1\r\n}\n"), []byte(`{"b":1,"b":2}`), []byte(`{"n":1.0}`), []byte(`"\u00e9\/"`),
		[]byte(" "), []byte("not json"), []byte("--flag"))
}

func TestRustSeesGoPayloadsByteForByte(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	w := f.startRustWorker(2, []string{"default=1"})
	all := append(payloads(t), []byte{0}, []byte{0xff, 0xfe}, bytes.Repeat([]byte{0, 200}, 500_000))
	for i, payload := range all {
		id := strconv.Itoa(i)
		f.enqueue("ok", payload, asynq.TaskID(id))
		if got := w.waitEnd(id).payload(f); !bytes.Equal(got, payload) {
			t.Errorf("payload %d: Rust saw %d bytes %.80q, want %d bytes %.80q", i, len(got), got, len(payload), payload)
		}
	}
}

func TestGoSeesRustPayloadsByteForByte(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	s := f.startGoServer(nil, "default")
	var batch []batchTask
	all := payloads(t)
	for i, payload := range all {
		id := strconv.Itoa(i)
		batch = append(batch, batchTask{Type: "ok", Payload: pointer(string(payload)), TaskID: "batch-" + id})
		f.rustEnqueue("ok", "--payload="+string(payload), "--task-id", "flag-"+id)
	}
	f.rustEnqueueBatch(batch)
	for i, payload := range all {
		for _, way := range []string{"flag-", "batch-"} {
			id := way + strconv.Itoa(i)
			if got := s.waitRun(id).payload; !bytes.Equal(got, payload) {
				t.Errorf("payload %s: Go saw %d bytes %.80q, want %d bytes %.80q", id, len(got), got, len(payload), payload)
			}
		}
	}
}

// Rust keeps a payload as it is when it writes the message anew.
func TestPayloadsSurviveARetryInRust(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.startRustWorker(2, []string{"default=1"})
	for i, payload := range [][]byte{nil, []byte("{\"a\" : 1.0}\n"), []byte("ж")} {
		id := strconv.Itoa(i)
		f.enqueue("fail", payload, asynq.TaskID(id))
		if got := f.waitState("default", id, asynq.TaskStateRetry).Payload; !bytes.Equal(got, payload) {
			t.Errorf("payload %d is %q after a retry, want %q", i, got, payload)
		}
	}
}
