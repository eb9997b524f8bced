package interop

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"queue.test/interop/internal/child"
)

// startRustScheduler starts `queuectl scheduler` with a file of this content.
func (f *fixture) startRustScheduler(config string) (stop func()) {
	f.t.Helper()
	file := filepath.Join(f.t.TempDir(), "cron.toml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		f.t.Fatal(err)
	}
	cmd := child.Command(queuectl(f.t), "scheduler", "--config", file, "--redis", f.url)
	var log strings.Builder
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		f.t.Fatal(err)
	}
	done := false
	end := func(signal os.Signal) {
		if !done {
			done = true
			_ = cmd.Process.Signal(signal)
			if err := cmd.Wait(); err != nil && signal == syscall.SIGTERM {
				f.t.Errorf("the Rust scheduler ends with %v:\n%s", err, log.String())
			}
		}
	}
	f.t.Cleanup(func() { end(syscall.SIGKILL) })
	return func() { end(syscall.SIGTERM) }
}

// goEntries reads all periodic entries with Go's inspector.
func (f *fixture) goEntries() []*asynq.SchedulerEntry {
	f.t.Helper()
	entries, err := f.inspector.SchedulerEntries()
	if err != nil {
		f.t.Fatalf("Go lists periodic entries: %v", err)
	}
	return entries
}

const rustEntries = `
[[cron]]
name = "full"
spec = "@yearly"
timezone = "Europe/Berlin"
type = "ok"
payload = { n = 1 }
queue = "low \"queue\""
max_retry = 7
timeout = "90s"
unique = "1h"
retention = "2h"
process_in = "1m"
group = "g"
headers = { a = "b(" }

[[cron]]
name = "often"
spec = "@every 1s"
type = "ok"
payload = "tick"
retention = "1h"

[[cron]]
spec = "0 0 30 2 *"
type = "never"
`

func TestGoSeesTheEntriesAndEventsOfRustSchedulers(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	before := time.Now()
	stop, stopSecond := f.startRustScheduler(rustEntries), f.startRustScheduler(rustEntries)
	var entries []*asynq.SchedulerEntry
	f.eventually("Go lists the entries of two Rust schedulers, each once", func() bool {
		entries = f.goEntries()
		return len(entries) == 3
	})
	byID := map[string]*asynq.SchedulerEntry{}
	for _, entry := range entries {
		byID[entry.ID] = entry
	}
	full := byID["full"]
	if full == nil {
		t.Fatalf("Go lists %v", byID)
	}
	if full.Spec != "CRON_TZ=Europe/Berlin @yearly" || full.Task.Type() != "ok" || string(full.Task.Payload()) != `{"n":1}` {
		t.Errorf("Go reads %q, %q with %q", full.Spec, full.Task.Type(), full.Task.Payload())
	}
	// Those that Go's inspector can read back.
	var options []string
	for _, option := range full.Opts {
		options = append(options, option.String())
	}
	slices.Sort(options)
	expected := []string{
		"MaxRetry(7)", "ProcessIn(1m0s)", `Queue("low \"queue\"")`, "Retention(2h0m0s)", "Timeout(1m30s)", "Unique(1h0m0s)",
	}
	if !slices.Equal(options, expected) {
		t.Errorf("Go reads the options %q instead of %q", options, expected)
	}
	if !full.Prev.IsZero() || full.Next.Before(before) || full.Next.In(time.UTC).Format("01-02 15:04:05") != "12-31 23:00:00" {
		t.Errorf("Go reads prev %v and next %v", full.Prev, full.Next)
	}
	for id, entry := range byID {
		// The zero time, which would be "now" for asynq's CLI and asynqmon, is no "never".
		if entry.Task.Type() == "never" && (entry.Next.UTC().Year() != 9999 || !entry.Prev.IsZero() || len(id) != 64) {
			t.Errorf("Go reads that %s is run next at %v and was at %v", id, entry.Next, entry.Prev)
		}
	}

	var events []*asynq.SchedulerEnqueueEvent
	f.eventually("Go lists enqueue events", func() bool {
		var err error
		events, err = f.inspector.ListSchedulerEnqueueEvents("often")
		if err != nil {
			t.Fatalf("Go lists events: %v", err)
		}
		return len(events) >= 3
	})
	for n, event := range events {
		tick, found := strings.CutPrefix(event.TaskID, "often:")
		second, err := strconv.ParseInt(tick, 10, 64)
		if !found || err != nil || !near(event.EnqueuedAt, time.Unix(second, 0), 5*time.Second) {
			t.Errorf("Go reads event %s at %v", event.TaskID, event.EnqueuedAt)
		}
		if n > 0 && event.EnqueuedAt.After(events[n-1].EnqueuedAt) {
			t.Errorf("event %d is younger than the one before", n)
		}
		if info := f.info("default", event.TaskID); string(info.Payload) != "tick" {
			t.Errorf("the task %s has the payload %q", event.TaskID, info.Payload)
		}
	}
	stop()
	stopSecond()
	if entries := f.goEntries(); len(entries) != 0 {
		t.Errorf("after the end Go lists %d entries", len(entries))
	}
	if events, _ := f.inspector.ListSchedulerEnqueueEvents("often"); len(events) == 0 {
		t.Error("the history is gone with the scheduler")
	}
}

func TestGoWorksTheTicksOfRustSchedulersEachOnce(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for range 3 {
		f.startRustScheduler("[[cron]]\nname = 'e'\nspec = '@every 1s'\ntype = 'ok'\npayload = 'p'\nmissed = 'all:100'\n")
	}
	server := f.startGoServer(nil, "default")
	f.eventually("Go works five ticks", func() bool { return len(server.ids()) >= 5 })
	seen := map[int64]bool{}
	var first, last int64
	for _, id := range server.ids() {
		tick, err := strconv.ParseInt(strings.TrimPrefix(id, "e:"), 10, 64)
		if err != nil || seen[tick] {
			t.Fatalf("Go works %s among %v", id, server.ids())
		}
		seen[tick] = true
		if first == 0 || tick < first {
			first = tick
		}
		last = max(last, tick)
	}
	if int64(len(seen)) != last-first+1 {
		t.Errorf("ticks are missing: %v", server.ids())
	}
	if run := server.waitRun("e:" + strconv.FormatInt(first, 10)); string(run.payload) != "p" || run.maxRetry != 25 {
		t.Errorf("Go sees %+v", run)
	}
}

// startGoScheduler starts one that writes its heartbeat often.
func (f *fixture) startGoScheduler() *asynq.Scheduler {
	f.t.Helper()
	scheduler := asynq.NewScheduler(f.opt, &asynq.SchedulerOpts{
		LogLevel: asynq.FatalLevel, HeartbeatInterval: time.Second, Location: time.UTC,
	})
	f.t.Cleanup(scheduler.Shutdown)
	return scheduler
}

type cronEntry struct {
	ID, Scheduler, Spec, Type, Queue, State string
	Payload                                 string
	Options                                 []string
	Next, Last                              *time.Time
}

type cronLine struct {
	TaskID     string     `json:"task_id"`
	EnqueuedAt *time.Time `json:"enqueued_at"`
	Outcome    string
}

// rustCron runs `queuectl cron … --json`.
func rustCron[T any](f *fixture, args ...string) (value T) {
	f.t.Helper()
	out, refused := run(f.t, queuectl(f.t), append([]string{"--redis", f.url, "--json", "cron"}, args...)...)
	if refused != nil {
		f.t.Fatalf("queuectl cron %v: exit %d: %s", args, refused.code, refused.stderr)
	}
	if err := json.Unmarshal([]byte(out), &value); err != nil {
		f.t.Fatalf("queuectl cron %v: %v in %s", args, err, out)
	}
	return value
}

func TestRustReadsTheEntriesAndEventsOfAGoScheduler(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	scheduler := f.startGoScheduler()
	task := asynq.NewTask("ok", []byte("tick"))
	id, err := scheduler.Register("@every 1s", task, asynq.Queue("low"), asynq.MaxRetry(3), asynq.Retention(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	yearly, err := scheduler.Register("@yearly", asynq.NewTask("rare", nil))
	if err != nil {
		t.Fatal(err)
	}
	if err := scheduler.Start(); err != nil {
		t.Fatal(err)
	}
	f.startRustScheduler("[[cron]]\nname = 'rust'\nspec = '@yearly'\ntype = 'ok'\n")
	var entries []cronEntry
	f.eventually("Rust lists the entries of both, with the last run", func() bool {
		entries = rustCron[[]cronEntry](f, "ls")
		return len(entries) == 3 && slices.ContainsFunc(entries, func(e cronEntry) bool { return e.ID == id && e.Last != nil })
	})
	for _, entry := range entries {
		switch entry.ID {
		case id:
			if entry.Scheduler != "go" || entry.Spec != "@every 1s" || entry.Type != "ok" || entry.Payload != "tick" ||
				entry.Queue != "low" || entry.State != "active" || entry.Next == nil ||
				!slices.Equal(entry.Options, []string{`Queue("low")`, "MaxRetry(3)", "Retention(1h0m0s)"}) {
				t.Errorf("Rust reads %+v", entry)
			}
		case yearly:
			if entry.Last != nil || entry.Next == nil || entry.Queue != "default" || entry.Type != "rare" {
				t.Errorf("Rust reads %+v", entry)
			}
		default:
			if entry.ID != "rust" || entry.Scheduler != "rust" {
				t.Errorf("Rust reads %+v", entry)
			}
		}
	}
	events, err := f.inspector.ListSchedulerEnqueueEvents(id, asynq.PageSize(2), asynq.Page(1))
	if err != nil || len(events) == 0 {
		t.Fatalf("Go lists %d events: %v", len(events), err)
	}
	lines := rustCron[[]cronLine](f, "history", id, "--size", "1000")
	for _, event := range events {
		found := slices.ContainsFunc(lines, func(line cronLine) bool {
			return line.TaskID == event.TaskID && line.Outcome == "enqueued" && line.EnqueuedAt.Equal(event.EnqueuedAt)
		})
		if !found {
			t.Errorf("Rust does not list the event %s at %v", event.TaskID, event.EnqueuedAt)
		}
	}
	// What is Go's can only be looked at.
	_, refused := run(t, queuectl(t), "--redis", f.url, "cron", "pause", id)
	if refused == nil || refused.code != 3 {
		t.Errorf("pausing an entry of Go's: %+v", refused)
	}
}

func TestGoAndRustSchedulersWorkSideBySide(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	scheduler := f.startGoScheduler()
	if _, err := scheduler.Register("@every 1s", asynq.NewTask("ok", []byte("go"))); err != nil {
		t.Fatal(err)
	}
	if err := scheduler.Start(); err != nil {
		t.Fatal(err)
	}
	f.startRustScheduler("[[cron]]\nname = 'rust'\nspec = '@every 1s'\ntype = 'ok'\npayload = 'rust'\n")
	w := f.startRustWorker(2, []string{"default=1"})
	for _, payload := range []string{"go", "rust"} {
		f.eventually("Rust works the ticks of "+payload, func() bool {
			count := 0
			w.find(func(e event) bool {
				if e.Event == "end" && string(e.payload(f)) == payload {
					count++
				}
				return false
			})
			return count >= 2
		})
	}
	if entries := f.goEntries(); len(entries) != 2 {
		t.Errorf("Go lists %d entries", len(entries))
	}
}
