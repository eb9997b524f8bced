package interop

import (
	"testing"
	"time"

	"github.com/hibiken/asynq"
)

func TestGoReadsWhatRustCompleted(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	before := time.Now().Add(-time.Second)
	results := map[string]string{
		"text": `{"sum":3}`, "binary": "\x00\xff\xfe", "unicode": "результат 🌍", "empty": "",
	}
	for id, result := range results {
		f.enqueue("result", []byte(result), asynq.TaskID(id), asynq.Retention(2*time.Hour))
	}
	f.rustEnqueue("ok", "--task-id", "none", "--retention", "2h")
	results["none"] = ""
	w := f.startRustWorker(2, []string{"default=1"})
	for id, result := range results {
		got := f.waitState("default", id, asynq.TaskStateCompleted)
		if string(got.Result) != result || got.Retention != 2*time.Hour {
			t.Errorf("%s: Go reads result %q, retention %v", id, got.Result, got.Retention)
		}
		if got.CompletedAt.Before(before) || got.CompletedAt.After(time.Now().Add(time.Second)) {
			t.Errorf("%s: Go reads completion at %v", id, got.CompletedAt)
		}
		if !got.LastFailedAt.IsZero() || got.LastErr != "" || !got.NextProcessAt.IsZero() {
			t.Errorf("%s: Go reads %+v", id, got)
		}
		expiry := f.rdb.ZScore(ctx, queueKey("default", "completed"), id).Val()
		if int64(expiry) != got.CompletedAt.Add(2*time.Hour).Unix() {
			t.Errorf("%s: expires at %v, completed at %d", id, expiry, got.CompletedAt.Unix())
		}
	}
	w.stop()
	f.assertCount("default", "processed", "5")
	f.assertCount("default", "failed", "")
}

// Without retention nothing stays, result or not.
func TestRustResultGoesWithItsTask(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.enqueue("result", []byte("r"), asynq.TaskID("r"))
	w := f.startRustWorker(1, []string{"default=1"})
	w.waitEnd("r")
	f.waitGone("default", "r")
	w.stop()
	f.assertOnlyCounters("default")
}

func TestRustRemovesExpiredTasksThatGoCompleted(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	s := f.startGoServer(nil, "default")
	f.enqueue("result", []byte("r"), asynq.TaskID("r"), asynq.Retention(time.Second))
	s.waitRun("r")
	f.waitState("default", "r", asynq.TaskStateCompleted)
	s.Shutdown()
	w := f.startRustWorker(1, []string{"default=1"})
	f.waitGone("default", "r")
	w.stop()
	f.assertOnlyCounters("default")
}
