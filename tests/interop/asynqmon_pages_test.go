package interop

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"

	"queue.test/interop/internal/child"
)

// browse gives the page of an address after its scripts have run, and what they
// wrote on the console.
func (f *fixture) browse(address string) (page, console string) {
	f.t.Helper()
	// Its time passes as fast as nothing is asked, so that what a page asks again
	// and again is asked a few times.
	cmd := child.Command("chromium", "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
		"--disable-background-networking", "--user-data-dir="+f.t.TempDir(), "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
		"--enable-logging=stderr", "--virtual-time-budget=20000", "--dump-dom", address)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Start(); err != nil {
		f.t.Fatalf("start chromium: %v", err)
	}
	limit := time.AfterFunc(2*time.Minute, func() { _ = cmd.Process.Kill() })
	defer limit.Stop()
	if err := cmd.Wait(); err != nil {
		f.t.Fatalf("chromium at %s: %v\n%s", address, err, stderr.String())
	}
	return stdout.String(), stderr.String()
}

// TestAsynqmonsPagesRunAgainstOurRoutes serves the built pages of asynqmon, which
// are in its module, in front of our routes, and looks at them in a browser.
func TestAsynqmonsPagesRunAgainstOurRoutes(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("chromium"); err != nil {
		if os.Getenv("REQUIRE_TOOLS") != "" {
			t.Fatal("chromium is missing")
		}
		t.Skip("!!! chromium is missing: asynqmon's pages are NOT TESTED against our routes")
	}
	f := newFixture(t)
	f.startGoServer(func(c *asynq.Config) {
		c.RetryDelayFunc = func(int, error, *asynq.Task) time.Duration { return time.Hour }
	})
	f.enqueue("fail", []byte("broken pipe"), asynq.TaskID("failing"))
	f.enqueue("hang", []byte("h"), asynq.TaskID("running"))
	f.enqueue("ok", []byte("s"), asynq.TaskID("coming"), asynq.ProcessIn(time.Hour))
	f.waitState("default", "failing", asynq.TaskStateRetry)
	f.eventually("the heartbeat tells of the running task", func() bool {
		servers, err := f.inspector.Servers()
		return err == nil && len(servers) == 1 && len(servers[0].ActiveWorkers) == 1
	})
	pages, ours := f.startMonitor(""), f.startWeb()
	asked := make(chan string, 1000)
	proxy := func(m *monitor) *httputil.ReverseProxy {
		return &httputil.ReverseProxy{
			Transport: m.http.Transport,
			Rewrite: func(r *httputil.ProxyRequest) {
				r.SetURL(&url.URL{Scheme: "http", Host: m.name})
				r.Out.Host = m.name
			},
			ModifyResponse: func(answer *http.Response) error {
				if m == ours {
					asked <- strings.TrimPrefix(answer.Request.URL.Path, "/api/") + " " + answer.Status
				}
				return nil
			},
		}
	}
	mux := http.NewServeMux()
	mux.Handle("/", proxy(pages))
	mux.Handle("/api/", proxy(ours))
	front := httptest.NewServer(mux)
	t.Cleanup(front.Close)

	for _, page := range []struct {
		path, asks string
		shows      []string
	}{
		{"", "queues", []string{"default"}},
		// It shows of an id what is before a hyphen.
		{"queues/default?status=active", "queues/default/active_tasks", []string{"running", "hang"}},
		{"queues/default?status=scheduled", "queues/default/scheduled_tasks", []string{"coming"}},
		{"queues/default?status=retry", "queues/default/retry_tasks", []string{"failing"}},
		{"queues/default/tasks/failing", "queues/default/tasks/failing", []string{"broken pipe", "retry"}},
		{"servers", "servers", []string{"Host:PID", "default", "active"}},
		{"schedulers", "scheduler_entries", []string{"No entries"}},
		{"redis", "redis_info", []string{"redis_version", "Connected Clients"}},
	} {
		shown, console := f.browse(front.URL + "/" + page.path)
		answers := map[string]bool{}
		for len(asked) > 0 {
			answers[<-asked] = true
		}
		if !answers[page.asks+" 200 OK"] {
			t.Errorf("/%s: our routes have answered %v", page.path, answers)
		}
		for answer := range answers {
			if !strings.HasSuffix(answer, " 200 OK") {
				t.Errorf("/%s: %s", page.path, answer)
			}
		}
		for _, text := range page.shows {
			if !strings.Contains(shown, text) {
				t.Errorf("/%s does not show %q:\n%s", page.path, text, shown)
			}
		}
		lines := strings.Split(console, "\n")
		faults := slices.DeleteFunc(lines, func(line string) bool {
			// Its fonts are at another host, which is not asked here.
			return !strings.Contains(line, ":CONSOLE") || strings.Contains(line, "fonts.googleapis.com") || strings.Contains(line, "net::ERR_NAME_NOT_RESOLVED")
		})
		if len(faults) > 0 {
			t.Errorf("/%s writes on the console:\n%s", page.path, strings.Join(faults, "\n"))
		}
	}
}

// TestWebTellsOfRedisAsAsynqmonDoes compares the fields; their numbers change.
func TestWebTellsOfRedisAsAsynqmonDoes(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	told := map[string]map[string]any{}
	for _, mon := range []*monitor{f.startMonitor(""), f.startWeb()} {
		told[mon.name] = mon.get("redis_info").(map[string]any)
	}
	ours, gos := told["localhost"], told["asynqmon"]
	names := func(fields map[string]any) []string {
		list := []string{}
		for name := range fields {
			// Numbers of commands and errors, which come with the first of their kind.
			if !strings.HasPrefix(name, "errorstat") {
				list = append(list, name)
			}
		}
		slices.Sort(list)
		return list
	}
	if !slices.Equal(names(ours), names(gos)) {
		t.Errorf("the fields are %v, not %v", names(ours), names(gos))
	}
	info, want := ours["info"].(map[string]any), gos["info"].(map[string]any)
	if !slices.Equal(names(info), names(want)) || info["redis_version"] != want["redis_version"] {
		t.Errorf("of info there are\n%v\nand not\n%v", names(info), names(want))
	}
	for _, field := range []string{"cluster", "raw_cluster_nodes", "queue_locations"} {
		if ours[field] != gos[field] {
			t.Errorf("%s is %v, not %v", field, ours[field], gos[field])
		}
	}
	if raw, _ := ours["raw_info"].(string); !strings.Contains(raw, "# Memory\r\n") {
		t.Errorf("raw_info is %q", raw)
	}
}
