package interop

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/hibiken/asynq"

	"queue.test/interop/internal/child"
)

// oldGoPath is where the program in oldgo is built; TestMain removes it.
var oldGoPath = filepath.Join(os.TempDir(), fmt.Sprintf("oldgo-%d", os.Getpid()))

var buildOldGo = sync.OnceValue(func() error {
	build := exec.Command("go", "build", "-buildvcs=false", "-o", oldGoPath, ".")
	build.Dir = "oldgo"
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
})

// startOldGo runs the program in oldgo until the test ends.
func (f *fixture) startOldGo(args ...string) {
	f.t.Helper()
	if err := buildOldGo(); err != nil {
		f.t.Fatalf("build oldgo: %v", err)
	}
	cmd := child.Command(oldGoPath, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		f.t.Fatalf("start oldgo: %v", err)
	}
	f.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if f.t.Failed() && stderr.Len() > 0 {
			f.t.Logf("standard error of oldgo %s:\n%s", args[0], stderr.String())
		}
	})
}

// TestGoBeforeHeadersDropsThem: so whatever lives in headers needs v0.26 on
// all servers of its queue.
func TestGoBeforeHeadersDropsThem(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.rustEnqueue("fail", "--task-id", "fails", "--header", "k=v")
	f.rustEnqueue("ok", "--task-id", "succeeds", "--header", "k=v", "--retention", "1h")
	for _, id := range []string{"fails", "succeeds"} {
		if got := f.info("default", id).Headers["k"]; got != "v" {
			t.Fatalf("before, %s has the header %q", id, got)
		}
	}
	f.startOldGo("server", f.socket)
	for id, state := range map[string]asynq.TaskState{
		"fails": asynq.TaskStateRetry, "succeeds": asynq.TaskStateCompleted,
	} {
		if got := f.waitState("default", id, state).Headers; len(got) != 0 {
			t.Errorf("Go v0.24 has left %s the headers %v: the documents say otherwise", id, got)
		}
	}
}
