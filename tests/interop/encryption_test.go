package interop

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/hibiken/asynq"

	"queue.test/interop/internal/child"
)

const (
	secretPayload = `{"card":"4242-4242","user":7}`
	secretCard    = "4242-4242"
)

// encrypted is what the Rust handler prints.
type encrypted struct {
	ID      string `json:"id"`
	Payload string `json:"payload"`
	Retried int    `json:"retried"`
	Tenant  string `json:"tenant"`
}

func (f *fixture) encryptPeer(command, id string, args ...string) string {
	f.t.Helper()
	args = append([]string{command, "--redis", f.url, "--queue", "en", "--task-id", id}, args...)
	out, err := child.Command(interopPeer(f.t), args...).Output()
	if err != nil {
		f.t.Fatalf("interop-peer %v: %v", args, err)
	}
	return string(out)
}

// Go carries, retries, archives and runs an encrypted task again without
// knowing what is in it; afterwards Rust can still read it.
func TestGoCarriesWhatRustHasEncrypted(t *testing.T) {
	t.Parallel()
	for name, args := range map[string][]string{"whole": nil, "fields": {"--field", "card"}} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			f.encryptPeer("encrypt-enqueue", "s", args...)
			before := f.info("en", "s")
			if strings.Contains(string(before.Payload), secretCard) {
				t.Fatalf("Go reads the payload %q", before.Payload)
			}
			if len(args) > 0 && !strings.Contains(string(before.Payload), `"user":7`) {
				t.Errorf("Go cannot read the plain field of %q", before.Payload)
			}
			seen := make(chan map[string]string, 1)
			server := asynq.NewServer(f.opt, asynq.Config{Concurrency: 1, Queues: map[string]int{"en": 1}, LogLevel: asynq.FatalLevel})
			err := server.Start(asynq.HandlerFunc(func(_ context.Context, task *asynq.Task) error {
				seen <- task.Headers()
				return errors.New("not for me")
			}))
			if err != nil {
				t.Fatal(err)
			}
			headers := <-seen
			f.waitState("en", "s", asynq.TaskStateRetry)
			server.Shutdown()
			if headers["x-encrypted"] != "1 task" || headers["x-encrypted-key"] != "test-key" {
				t.Errorf("Go reads the headers %v", headers)
			}
			for _, step := range []func(string, string) error{f.inspector.ArchiveTask, f.inspector.RunTask} {
				if err := step("en", "s"); err != nil {
					t.Fatal(err)
				}
			}
			if after := f.info("en", "s"); string(after.Payload) != string(before.Payload) {
				t.Errorf("Go has changed the payload to %q", after.Payload)
			}
			var worked encrypted
			out := f.encryptPeer("encrypt-work", "s", args...)
			if err := json.Unmarshal([]byte(out), &worked); err != nil {
				t.Fatalf("%v: %q", err, out)
			}
			if want := (encrypted{"s", secretPayload, 1, "acme"}); worked != want {
				t.Errorf("Rust's handler sees %+v, not %+v", worked, want)
			}
			f.waitGone("en", "s")
		})
	}
}

// A Go scheduler or tool that changes the payload is found out.
func TestRustArchivesAnEncryptedTaskThatSomebodyHasChanged(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for _, id := range []string{"one", "two"} {
		f.encryptPeer("encrypt-enqueue", id)
	}
	one, two := f.info("en", "one"), f.info("en", "two")
	task := asynq.NewTaskWithHeaders("secret", one.Payload, map[string]string{
		"x-encrypted": "1 task", "x-encrypted-key": "test-key", "tenant": "other",
	})
	if err := f.inspector.DeleteTask("en", "two"); err != nil {
		t.Fatal(err)
	}
	f.enqueueTask(task, asynq.Queue("en"), asynq.TaskID("two"))
	if string(f.info("en", "two").Payload) == string(two.Payload) {
		t.Fatal("the test is not what it should be")
	}
	if err := f.inspector.DeleteTask("en", "one"); err != nil {
		t.Fatal(err)
	}
	// One that is as it should be comes behind it, so that the worker ends.
	f.encryptPeer("encrypt-enqueue", "three")
	f.encryptPeer("encrypt-work", "three")
	info := f.waitState("en", "two", asynq.TaskStateArchived)
	if !strings.Contains(info.LastErr, `was not encrypted with the key "test-key" for this task, or was changed since`) {
		t.Errorf("the error is %q", info.LastErr)
	}
	if info.Retried != 0 {
		t.Errorf("%d retries are spent", info.Retried)
	}
}
