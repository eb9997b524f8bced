package interop

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/json"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"queue.test/interop/internal/child"
)

// event is a line the Rust worker prints.
type event struct {
	Event        string            `json:"event"`
	ID           string            `json:"id"`
	Type         string            `json:"type"`
	Queue        string            `json:"queue"`
	PayloadB64   string            `json:"payload_b64"`
	Retried      int               `json:"retried"`
	MaxRetry     int               `json:"max_retry"`
	Headers      map[string]string `json:"headers"`
	DeadlineUnix int64             `json:"deadline_unix"`
	TimeNs       int64             `json:"time_ns"`
	Group        string            `json:"group"`
	Payloads     []string          `json:"payloads"`
}

func (e event) payload(f *fixture) []byte {
	f.t.Helper()
	data, err := base64.StdEncoding.DecodeString(e.PayloadB64)
	if err != nil {
		f.t.Fatalf("payload_b64 of task %s: %v", e.ID, err)
	}
	return data
}

// rustWorker is a running `interop-peer worker`.
type rustWorker struct {
	f      *fixture
	cmd    *exec.Cmd
	exited chan struct{}

	mu     sync.Mutex
	events []event
	bad    []string
	stderr bytes.Buffer
}

// startRustWorker starts a worker and waits until it is ready. Queues are
// written as name=weight.
func (f *fixture) startRustWorker(concurrency int, queues []string, more ...string) *rustWorker {
	f.t.Helper()
	args := []string{"worker", "--redis", f.url, "--concurrency", strconv.Itoa(concurrency)}
	for _, queue := range queues {
		args = append(args, "--queue", queue)
	}
	cmd := child.Command(interopPeer(f.t), append(args, more...)...)
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		f.t.Fatal(err)
	}
	w := &rustWorker{f: f, cmd: cmd, exited: make(chan struct{})}
	cmd.Stderr = &lockedWriter{&w.mu, &w.stderr}
	if err := cmd.Start(); err != nil {
		f.t.Fatalf("start the Rust worker: %v", err)
	}
	go func() {
		lines := bufio.NewScanner(stdout)
		lines.Buffer(nil, 16<<20)
		for lines.Scan() {
			w.record(lines.Bytes())
		}
		_ = cmd.Wait() // Only after all output is read.
		close(w.exited)
	}()
	f.t.Cleanup(w.cleanup)
	w.wait("ready", func(e event) bool { return e.Event == "ready" })
	return w
}

type lockedWriter struct {
	mu  *sync.Mutex
	out *bytes.Buffer
}

func (l *lockedWriter) Write(data []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.out.Write(data)
}

func (w *rustWorker) record(line []byte) {
	var e event
	err := json.Unmarshal(line, &e)
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		w.bad = append(w.bad, string(line))
		return
	}
	w.events = append(w.events, e)
}

func (w *rustWorker) cleanup() {
	_ = w.cmd.Process.Kill()
	<-w.exited
	for _, line := range w.bad {
		w.f.t.Errorf("the Rust worker prints a line that is not an event: %s", line)
	}
	if w.f.t.Failed() && w.stderr.Len() > 0 {
		w.f.t.Logf("standard error of the Rust worker:\n%s", w.stderr.String())
	}
}

func (w *rustWorker) pid() int { return w.cmd.Process.Pid }

func (w *rustWorker) find(match func(event) bool) (event, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	at := slices.IndexFunc(w.events, match)
	if at < 0 {
		return event{}, false
	}
	return w.events[at], true
}

// starts answers the ids of all handler starts, in order.
func (w *rustWorker) starts() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var ids []string
	for _, e := range w.events {
		if e.Event == "start" {
			ids = append(ids, e.ID)
		}
	}
	return ids
}

// aggregates answers the payloads of each aggregate of a group, joined.
func (w *rustWorker) aggregates(group string) []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	var joined []string
	for _, e := range w.events {
		if e.Event == "aggregate" && e.Group == group {
			joined = append(joined, strings.Join(e.Payloads, ","))
		}
	}
	return joined
}

// wait waits for an event, and gives up early if the worker is gone.
func (w *rustWorker) wait(what string, match func(event) bool) event {
	w.f.t.Helper()
	var found event
	w.f.eventually("the Rust worker prints: "+what, func() bool {
		gone := w.hasExited()
		e, ok := w.find(match)
		if !ok && gone {
			w.f.t.Fatalf("the Rust worker ended (%v) before it printed: %s", w.cmd.ProcessState, what)
		}
		found = e
		return ok
	})
	return found
}

func (w *rustWorker) waitStart(id string) event {
	w.f.t.Helper()
	return w.wait("start of "+id, func(e event) bool { return e.Event == "start" && e.ID == id })
}

func (w *rustWorker) waitEnd(id string) event {
	w.f.t.Helper()
	return w.wait("end of "+id, func(e event) bool { return e.Event == "end" && e.ID == id })
}

// waitAttempt waits for the start of the attempt after so many retries.
func (w *rustWorker) waitAttempt(id string, retried int) event {
	w.f.t.Helper()
	return w.wait("retry "+strconv.Itoa(retried)+" of "+id, func(e event) bool {
		return e.Event == "start" && e.ID == id && e.Retried == retried
	})
}

func (w *rustWorker) hasExited() bool {
	select {
	case <-w.exited:
		return true
	default:
		return false
	}
}

func (w *rustWorker) signal(signal syscall.Signal) {
	w.f.t.Helper()
	if err := w.cmd.Process.Signal(signal); err != nil {
		w.f.t.Fatalf("signal the Rust worker: %v", err)
	}
}

// stop shuts the worker down gracefully.
func (w *rustWorker) stop() {
	w.f.t.Helper()
	w.signal(syscall.SIGTERM)
	w.f.eventuallyWithin(30*time.Second, "the Rust worker has shut down", w.hasExited)
	if code := w.cmd.ProcessState.ExitCode(); code != 0 {
		w.f.t.Fatalf("the Rust worker shut down with %v", w.cmd.ProcessState)
	}
}

// kill ends the worker as a crash does.
func (w *rustWorker) kill() {
	_ = w.cmd.Process.Kill()
	<-w.exited
}
