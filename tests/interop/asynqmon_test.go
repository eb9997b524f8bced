package interop

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	dto "github.com/prometheus/client_model/go"

	"queue.test/interop/internal/child"
)

// monitor is asynqmon, or our dashboard with its routes, looking at a fixture's Redis.
type monitor struct {
	f    *fixture
	name string
	http *http.Client
}

func (f *fixture) startMonitor(prometheus string) *monitor {
	f.t.Helper()
	socket := filepath.Join(filepath.Dir(f.socket), "asynqmon.sock")
	f.startOldGo("asynqmon", f.socket, socket, prometheus)
	return f.awaitMonitor("asynqmon", socket)
}

// startWeb is our dashboard, to be asked as asynqmon is.
func (f *fixture) startWeb(more ...string) *monitor {
	f.t.Helper()
	socket := filepath.Join(filepath.Dir(f.socket), "web.sock")
	cmd := child.Command(queuectl(f.t), append([]string{"web", "--redis", f.url, "--addr", "unix:" + socket}, more...)...)
	if err := cmd.Start(); err != nil {
		f.t.Fatalf("start queuectl web: %v", err)
	}
	f.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return f.awaitMonitor("localhost", socket)
}

// awaitMonitor waits until a program of this name, which is a host to it, answers there.
func (f *fixture) awaitMonitor(name, socket string) *monitor {
	f.t.Helper()
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}
	m := &monitor{f: f, name: name, http: &http.Client{Transport: &http.Transport{DialContext: dial}}}
	f.t.Cleanup(m.http.CloseIdleConnections)
	f.eventually(name+" answers", func() bool {
		answer, err := m.http.Get("http://" + name + "/api/queues")
		if err != nil {
			return false
		}
		defer answer.Body.Close()
		return answer.StatusCode == http.StatusOK
	})
	return m
}

// call answers the status and what was answered, nil for nothing.
func (m *monitor) call(method, path string, body any) (int, any) {
	m.f.t.Helper()
	encoded, err := json.Marshal(body)
	if err != nil {
		m.f.t.Fatal(err)
	}
	request, err := http.NewRequest(method, "http://"+m.name+"/api/"+path, bytes.NewReader(encoded))
	if err != nil {
		m.f.t.Fatal(err)
	}
	answer, err := m.http.Do(request)
	if err != nil {
		m.f.t.Fatalf("%s %s: %v", method, path, err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		m.f.t.Fatalf("%s %s: %v", method, path, err)
	}
	var value any
	if len(text) > 0 && json.Unmarshal(text, &value) != nil {
		value = string(text)
	}
	return answer.StatusCode, value
}

func (m *monitor) get(path string) any {
	m.f.t.Helper()
	status, value := m.call("GET", path, nil)
	if status != http.StatusOK {
		m.f.t.Fatalf("%s answers GET %s with %d: %v", m.name, path, status, value)
	}
	return value
}

// alike makes two answers comparable: instants become words, what a process
// chooses by itself (ids, sizes) goes.
func alike(value any) any {
	switch value := value.(type) {
	case []any:
		list := []any{}
		for _, item := range value {
			list = append(list, alike(item))
		}
		// Redis gives sets, and lists by score, in no order.
		slices.SortStableFunc(list, func(a, b any) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
		return list
	case map[string]any:
		fields := map[string]any{}
		for name, field := range value {
			fields[name] = alike(field)
			switch name {
			case "host", "pid", "latency_msec", "display_latency":
				delete(fields, name)
			case "memory_usage_bytes":
				fields[name] = field.(float64) > 0
			case "ttl_seconds":
				fields[name] = int(field.(float64)+60) / 120
			case "error_message":
				// The text around it is each side's own.
				if text := field.(string); text != "" && strings.Contains(text, value["payload"].(string)) {
					fields[name] = "has the payload"
				}
			}
			if _, isServer := value["queue_priorities"]; isServer || value["spec"] != nil {
				delete(fields, "id")
			}
		}
		return fields
	case string:
		if at, err := time.Parse(time.RFC3339, value); err == nil && at.Year() > 2000 {
			return "an instant"
		}
	}
	return value
}

// The queues are named after what asynqmon does with their tasks.
var (
	monQueues = []string{"run", "archive", "delete", "cancel"}
	monKinds  = []string{"one", "batch", "all"}
	monStates = map[string][]string{
		"run":     {"scheduled", "retry", "archived", "aggregating"},
		"archive": {"pending", "scheduled", "retry", "aggregating"},
		"delete":  {"pending", "scheduled", "retry", "archived", "completed", "aggregating"},
	}
	monLists = []string{"active", "pending", "scheduled", "retry", "archived", "completed", "aggregating"}
)

func monList(queue, state string) string {
	if state == "aggregating" {
		return "queues/" + queue + "/groups/team:1/aggregating_tasks"
	}
	return "queues/" + queue + "/" + state + "_tasks"
}

// monSide is a Redis with the same state as another's, and asynqmon on it.
type monSide struct {
	*fixture
	mon     *monitor
	enqueue func(typ, id, queue, payload, group string, in, retention time.Duration)
}

func newMonSide(t *testing.T, isRust bool, prometheus string) *monSide {
	f := newFixture(t)
	s := &monSide{fixture: f}
	s.enqueue = func(typ, id, queue, payload, group string, in, retention time.Duration) {
		f.t.Helper()
		if isRust {
			args := []string{"--task-id", id, "--queue", queue, "--payload=" + payload}
			for flag, value := range map[string]time.Duration{"--in": in, "--retention": retention} {
				if value > 0 {
					args = append(args, flag, value.String())
				}
			}
			if group != "" {
				args = append(args, "--group", group)
			}
			f.rustEnqueue(typ, args...)
			return
		}
		options := []asynq.Option{asynq.TaskID(id), asynq.Queue(queue), asynq.Retention(retention)}
		if group != "" {
			options = append(options, asynq.Group(group))
		}
		if in > 0 {
			options = append(options, asynq.ProcessIn(in))
		}
		f.enqueue(typ, []byte(payload), options...)
	}
	for _, kind := range monKinds {
		s.enqueue("hang", "active-"+kind, "cancel", "c", "", 0, 0)
		for _, queue := range monQueues[:3] {
			s.enqueue("fail", "retry-"+kind, queue, "boom", "", 0, 0)
			s.enqueue("skip", "archived-"+kind, queue, "bad", "", 0, 0)
			s.enqueue("result", "completed-"+kind, queue, `{"n": 1}`, "", 0, time.Hour)
		}
	}
	if isRust {
		f.startRustWorker(10, []string{"run=1", "archive=2", "delete=3", "cancel=4"}, "--retry-delay-secs", "3600")
		f.startRustScheduler("[[cron]]\nname = 'e'\nspec = '@yearly'\ntype = 'ok'\npayload = 'p'\nqueue = 'run'\n")
	} else {
		f.startGoServer(func(c *asynq.Config) {
			c.Concurrency = 10
			c.Queues = map[string]int{"run": 1, "archive": 2, "delete": 3, "cancel": 4}
			c.RetryDelayFunc = func(int, error, *asynq.Task) time.Duration { return time.Hour }
		})
		scheduler := f.startGoScheduler()
		if _, err := scheduler.Register("@yearly", asynq.NewTask("ok", []byte("p")), asynq.Queue("run")); err != nil {
			t.Fatal(err)
		}
		if err := scheduler.Start(); err != nil {
			t.Fatal(err)
		}
	}
	s.mon = f.startMonitor(prometheus)
	return s
}

// settle waits for what the server does, and adds what it is to leave alone.
func (s *monSide) settle() {
	s.t.Helper()
	for _, queue := range monQueues[:3] {
		for _, kind := range monKinds {
			s.waitState(queue, "retry-"+kind, asynq.TaskStateRetry)
			s.waitState(queue, "archived-"+kind, asynq.TaskStateArchived)
			s.waitState(queue, "completed-"+kind, asynq.TaskStateCompleted)
		}
		if status, _ := s.mon.call("POST", "queues/"+queue+":pause", nil); status != http.StatusNoContent {
			s.t.Fatalf("%s pauses a queue with %d", s.mon.name, status)
		}
		for _, kind := range monKinds {
			s.enqueue("ok", "pending-"+kind, queue, "p", "", 0, 0)
			s.enqueue("ok", "scheduled-"+kind, queue, "s", "", time.Hour, 0)
			s.enqueue("ok", "aggregating-"+kind, queue, "g", "team:1", 0, 0)
		}
	}
	// A group that no task has joined yet.
	s.enqueue("ok", "later", "later", "s", "empty", time.Hour, 0)
	s.eventually("the heartbeat tells of all running tasks", func() bool {
		servers, err := s.inspector.Servers()
		return err == nil && len(servers) == 1 && len(servers[0].ActiveWorkers) == len(monKinds)
	})
}

// shows answers all that asynqmon shows.
func (s *monSide) shows() map[string]any {
	s.t.Helper()
	paths := []string{"queues", "queue_stats", "servers", "scheduler_entries", "queues/later", "queues/later/groups"}
	for _, queue := range monQueues {
		paths = append(paths, "queues/"+queue, "queues/"+queue+"/groups", "queues/"+queue+"/pending_tasks?size=2&page=2")
		for _, list := range monLists {
			paths = append(paths, monList(queue, list))
			for _, kind := range monKinds {
				if s.exists(taskKey(queue, list+"-"+kind)) {
					paths = append(paths, "queues/"+queue+"/tasks/"+list+"-"+kind)
				}
			}
		}
	}
	shown := map[string]any{}
	for _, path := range paths {
		shown[path] = alike(s.mon.get(path))
	}
	return shown
}

// change does what asynqmon can do to tasks, and answers its answers.
func (s *monSide) change() map[string]any {
	s.t.Helper()
	answers := map[string]any{}
	do := func(method, path string, body any) {
		status, answer := s.mon.call(method, path, body)
		if status >= 300 {
			s.t.Errorf("%s answers %s %s with %d: %v", s.mon.name, method, path, status, answer)
		}
		answers[method+" "+path] = []any{status, alike(answer)}
	}
	ids := func(id string) any { return map[string][]string{"task_ids": {id, "nobody"}} }
	for _, verb := range monQueues[:3] {
		method, one := "POST", ":"+verb
		if verb == "delete" {
			method, one = "DELETE", ""
		}
		for _, state := range monStates[verb] {
			list := monList(verb, state)
			do(method, list+"/"+state+"-one"+one, nil)
			do("POST", list+":batch_"+verb, ids(state+"-batch"))
			do(method, list+":"+verb+"_all", nil)
		}
	}
	do("POST", "queues/cancel/active_tasks/active-one:cancel", nil)
	do("POST", "queues/cancel/active_tasks:batch_cancel", ids("active-batch"))
	do("POST", "queues/cancel/active_tasks:cancel_all", nil)
	for _, kind := range monKinds {
		s.waitState("cancel", "active-"+kind, asynq.TaskStateRetry)
	}
	s.eventually("the heartbeat tells that nothing runs", func() bool {
		servers, err := s.inspector.Servers()
		return err == nil && len(servers) == 1 && len(servers[0].ActiveWorkers) == 0
	})
	return answers
}

// TestAsynqmonShowsAndChangesWhatItDoesWithGo has asynqmon look at one Redis
// with state of ours and one with the same state of Go's, do the same to
// both, and look again.
func TestAsynqmonShowsAndChangesWhatItDoesWithGo(t *testing.T) {
	t.Parallel()
	var families map[string]*dto.MetricFamily
	asked := make(chan string, 100)
	prometheus := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		query := r.URL.Query().Get("query")
		asked <- query
		fmt.Fprintf(w, `{"found": %d}`, found(families, query))
	}))
	t.Cleanup(prometheus.Close)
	ours, gos := newMonSide(t, true, prometheus.URL), newMonSide(t, false, prometheus.URL)
	for _, side := range []*monSide{ours, gos} {
		side.settle()
	}
	compareShown(t, "before", ours.shows(), gos.shows())

	families = ours.scrape(ours.startExporter())
	for name, answer := range ours.mon.get("metrics").(map[string]any) {
		if count := answer.(map[string]any)["found"].(float64); count < 1 {
			t.Errorf("the exporter has nothing of what asynqmon shows as %s", name)
		}
	}
	if len(asked) != 9 {
		t.Errorf("asynqmon has asked Prometheus %d times", len(asked))
	}
	info := ours.mon.get("redis_info").(map[string]any)["info"].(map[string]any)
	if info["redis_version"] == "" {
		t.Errorf("asynqmon shows of Redis %v", info)
	}

	compareShown(t, "changing", ours.change(), gos.change())
	compareShown(t, "after", ours.shows(), gos.shows())
	for queue, want := range map[string]int{"delete": http.StatusNoContent, "run": http.StatusBadRequest} {
		for _, side := range []*monSide{ours, gos} {
			if status, answer := side.mon.call("DELETE", "queues/"+queue, nil); status != want {
				t.Errorf("asynqmon removes queue %s with %d: %v", queue, status, answer)
			}
		}
	}
	id := strings.TrimSpace(ours.queuectl("cron", "run", "e"))
	events := alike(ours.mon.get("scheduler_entries/e/enqueue_events"))
	want := map[string]any{"events": []any{map[string]any{"task_id": id, "enqueued_at": "an instant"}}}
	if !reflect.DeepEqual(events, want) {
		t.Errorf("asynqmon shows the events %v, not %v", events, want)
	}
	if status, _ := ours.mon.call("POST", "queues/run:resume", nil); status != http.StatusNoContent {
		t.Errorf("asynqmon resumes a queue with %d", status)
	}
	for _, kind := range monKinds {
		ours.waitGone("run", "pending-"+kind)
	}
}

// compareShown compares answers with those wanted, by what was asked.
func compareShown(t *testing.T, what string, ours, wanted map[string]any) {
	t.Helper()
	if len(ours) != len(wanted) {
		t.Errorf("%s: %d answers, not %d", what, len(ours), len(wanted))
	}
	for path, want := range wanted {
		if got := ours[path]; !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %s is answered with\n%v\nand not\n%v", what, path, got, want)
		}
	}
}

// TestWebAnswersAsAsynqmonDoes has our dashboard and asynqmon look at the same
// keys, ours and Go's. Then the one changes ours and the other the same things
// of Go's, and both look again.
func TestWebAnswersAsAsynqmonDoes(t *testing.T) {
	t.Parallel()
	// A Prometheus that answers with what it is asked.
	prometheus := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, `{"asked": %q}`, r.URL.Path+"?"+r.URL.Query().Encode())
	}))
	t.Cleanup(prometheus.Close)
	ours, gos := newMonSide(t, true, prometheus.URL), newMonSide(t, false, prometheus.URL)
	webs := map[*monSide]*monitor{ours: ours.startWeb("--prometheus", prometheus.URL+"/"), gos: gos.startWeb("--prometheus", prometheus.URL)}
	look := func(what string) {
		t.Helper()
		for side, web := range webs {
			with := *side
			with.mon = web
			compareShown(t, what, with.shows(), side.shows())
		}
	}
	changed := *ours
	changed.mon = webs[ours]
	changed.settle()
	gos.settle()
	look("before")

	got, want := changed.change(), gos.change()
	// asynqmon takes every cancellation for done; we know of this id that nobody has it.
	const cancel = "POST queues/cancel/active_tasks:batch_cancel"
	honest := []any{http.StatusOK, map[string]any{"canceled_ids": []any{"active-batch"}, "error_ids": []any{"nobody"}}}
	if !reflect.DeepEqual(got[cancel], honest) {
		t.Errorf("ours cancels with %v", got[cancel])
	}
	delete(got, cancel)
	delete(want, cancel)
	compareShown(t, "changing", got, want)
	look("after")
	for _, window := range []string{"endtime=1700000000", "endtime=1700000000&duration=60", "endtime=1700000000&duration=90000&queues=run,archive:2", "endtime=1700000000&duration=9000000"} {
		got, want := changed.mon.get("metrics?"+window), ours.mon.get("metrics?"+window)
		if len(got.(map[string]any)) != 9 || !reflect.DeepEqual(got, want) {
			t.Errorf("of Prometheus, ours asks %v, asynqmon %v", got, want)
		}
	}
	ours.queuectl("cron", "run", "e")
	events := "scheduler_entries/e/enqueue_events"
	if got, want := changed.mon.get(events), ours.mon.get(events); !reflect.DeepEqual(alike(got), alike(want)) {
		t.Errorf("ours shows the events %v, asynqmon %v", got, want)
	}
	for path, want := range map[string]int{
		"DELETE queues/delete": http.StatusNoContent, "DELETE queues/run": http.StatusBadRequest, "DELETE queues/none": http.StatusNotFound,
		"POST queues/archive:resume": http.StatusNoContent,
	} {
		method, path, _ := strings.Cut(path, " ")
		for _, mon := range []*monitor{changed.mon, gos.mon} {
			if status, answer := mon.call(method, path, nil); status != want {
				t.Errorf("%s answers %s %s with %d, not %d: %v", mon.name, method, path, status, want, answer)
			}
		}
	}
}

// found counts the samples of all metrics that a query of asynqmon names.
func found(families map[string]*dto.MetricFamily, query string) int {
	count := -1
	for _, part := range regexp.MustCompile(`(asynq_\w+)\{([^,}]*)`).FindAllStringSubmatch(query, -1) {
		here := 0
		for labels := range samples(families[part[1]]) {
			if strings.Contains(labels, part[2]) {
				here++
			}
		}
		if count < 0 || here < count {
			count = here
		}
	}
	return count
}
