package interop

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"queue.test/interop/internal/child"
)

// rustBinary finds a Rust program or ends the test.
func rustBinary(t *testing.T, variable, name string) string {
	t.Helper()
	path := os.Getenv(variable)
	if path == "" {
		path = filepath.Join("..", "..", "target", "debug", name)
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("%s is not built: run `make test` at the top of the repository, or set %s", name, variable)
	}
	return path
}

func queuectl(t *testing.T) string { return rustBinary(t, "QUEUECTL", "queuectl") }

func interopPeer(t *testing.T) string { return rustBinary(t, "INTEROP_PEER", "interop-peer") }

// refusal is a failed run of a Rust program.
type refusal struct {
	code   int
	stderr string
}

// run runs a Rust program to its end.
func run(t *testing.T, path string, args ...string) (stdout string, refused *refusal) {
	t.Helper()
	cmd := child.Command(path, args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		if cmd.ProcessState == nil {
			t.Fatalf("start %s: %v", path, err)
		}
		return out.String(), &refusal{cmd.ProcessState.ExitCode(), errs.String()}
	}
	return out.String(), nil
}

// rustEnqueue puts a task in with queuectl and answers its id.
func (f *fixture) rustEnqueue(typ string, args ...string) string {
	f.t.Helper()
	id, refused := f.tryRustEnqueue(typ, args...)
	if refused != nil {
		f.t.Fatalf("queuectl enqueue %s %v: exit %d: %s", typ, args, refused.code, refused.stderr)
	}
	return id
}

func (f *fixture) tryRustEnqueue(typ string, args ...string) (string, *refusal) {
	f.t.Helper()
	all := append([]string{"enqueue", typ}, args...)
	out, refused := run(f.t, queuectl(f.t), append(all, "--redis", f.url)...)
	id := strings.TrimSuffix(out, "\n")
	if refused == nil && (id == "" || strings.ContainsAny(id, "\n")) {
		f.t.Fatalf("queuectl enqueue prints %q, not an id alone", out)
	}
	return id, refused
}

// batchTask is one line of a batch file.
type batchTask struct {
	Type      string            `json:"type"`
	Payload   *string           `json:"payload,omitempty"`
	Queue     string            `json:"queue,omitempty"`
	MaxRetry  *int              `json:"max_retry,omitempty"`
	Timeout   string            `json:"timeout,omitempty"`
	In        string            `json:"in,omitempty"`
	At        string            `json:"at,omitempty"`
	Unique    string            `json:"unique,omitempty"`
	Retention string            `json:"retention,omitempty"`
	TaskID    string            `json:"task_id,omitempty"`
	Group     string            `json:"group,omitempty"`
	Headers   map[string]string `json:"headers,omitempty"`
}

func pointer[T any](value T) *T { return &value }

// rustEnqueueBatch puts many tasks in with one queuectl.
func (f *fixture) rustEnqueueBatch(tasks []batchTask) {
	f.t.Helper()
	var lines bytes.Buffer
	encoder := json.NewEncoder(&lines)
	for _, task := range tasks {
		if err := encoder.Encode(task); err != nil {
			f.t.Fatal(err)
		}
	}
	path := filepath.Join(f.t.TempDir(), "batch.jsonl")
	if err := os.WriteFile(path, lines.Bytes(), 0o600); err != nil {
		f.t.Fatal(err)
	}
	_, refused := run(f.t, queuectl(f.t), "enqueue", "--batch", path, "--redis", f.url)
	if refused != nil {
		f.t.Fatalf("queuectl enqueue --batch: exit %d: %s", refused.code, refused.stderr)
	}
}
