package interop

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/hibiken/asynq/x/metrics"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"

	"queue.test/interop/internal/child"
)

// startExporter starts `queuectl exporter` and returns its address.
func (f *fixture) startExporter() string {
	f.t.Helper()
	cmd := child.Command(queuectl(f.t), "exporter", "--redis", f.url, "--addr", "127.0.0.1:0")
	stderr, err := cmd.StderrPipe()
	if err != nil {
		f.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		f.t.Fatalf("start queuectl exporter: %v", err)
	}
	f.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	said := regexp.MustCompile(`address="?([0-9.:]+)`)
	lines := bufio.NewScanner(stderr)
	for lines.Scan() {
		if found := said.FindStringSubmatch(lines.Text()); found != nil {
			go io.Copy(io.Discard, stderr)
			return found[1]
		}
	}
	f.t.Fatal("queuectl exporter ended before it said where it listens")
	return ""
}

// scrape reads metrics as a Prometheus server does.
func (f *fixture) scrape(address string) map[string]*dto.MetricFamily {
	f.t.Helper()
	answer, err := http.Get("http://" + address + "/metrics")
	if err != nil {
		f.t.Fatal(err)
	}
	defer answer.Body.Close()
	if format := expfmt.ResponseFormat(answer.Header); format != expfmt.FmtText {
		f.t.Fatalf("the format is %q, not that of Go's exporter, %q", format, expfmt.FmtText)
	}
	var parser expfmt.TextParser
	families, err := parser.TextToMetricFamilies(answer.Body)
	if err != nil {
		f.t.Fatalf("what the exporter serves cannot be parsed: %v", err)
	}
	return families
}

// gatherGo has Go's exporter look at the same Redis.
func (f *fixture) gatherGo() map[string]*dto.MetricFamily {
	f.t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(metrics.NewQueueMetricsCollector(f.inspector))
	gathered, err := registry.Gather()
	if err != nil {
		f.t.Fatal(err)
	}
	families := map[string]*dto.MetricFamily{}
	for _, family := range gathered {
		families[family.GetName()] = family
	}
	return families
}

// samples are the values of a family by their labels.
func samples(family *dto.MetricFamily) map[string]float64 {
	values := map[string]float64{}
	for _, metric := range family.GetMetric() {
		var labels []string
		for _, label := range metric.GetLabel() {
			labels = append(labels, fmt.Sprintf("%s=%q", label.GetName(), label.GetValue()))
		}
		value := metric.GetGauge().GetValue()
		if family.GetType() == dto.MetricType_COUNTER {
			value = metric.GetCounter().GetValue()
		}
		values[strings.Join(labels, ",")] = value
	}
	return values
}

// TestMetricsEqualThoseOfGosExporter has both exporters look at one Redis with
// tasks in every state that Go's shows.
func TestMetricsEqualThoseOfGosExporter(t *testing.T) {
	f := newFixture(t)
	f.enqueueID("ok", "kept", asynq.Queue("m"), asynq.Retention(time.Hour))
	f.enqueueID("fail", "again", asynq.Queue("m"))
	f.enqueueID("skip", "given-up", asynq.Queue("m"))
	f.enqueueID("hang", "busy", asynq.Queue("m"))
	w := f.startRustWorker(4, []string{"m=1"}, "--retry-delay-secs", "3600")
	f.waitState("m", "kept", asynq.TaskStateCompleted)
	f.waitState("m", "again", asynq.TaskStateRetry)
	f.waitState("m", "given-up", asynq.TaskStateArchived)
	w.waitStart("busy")
	if err := f.inspector.PauseQueue("m"); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"p1", "p2", "p3"} {
		f.enqueueID("ok", id, asynq.Queue("m"))
	}
	f.enqueueID("ok", "later", asynq.Queue("m"), asynq.ProcessIn(time.Hour))
	f.enqueueID("ok", "grouped", asynq.Queue("m"), asynq.Group("g"))
	f.enqueueID("ok", "other", asynq.Queue(`quo"te\d`))

	ours, gos := f.scrape(f.startExporter()), f.gatherGo()
	if len(gos) != 7 {
		t.Fatalf("Go's exporter shows %v", slices.Sorted(maps.Keys(gos)))
	}
	for name, want := range gos {
		got := ours[name]
		if got == nil {
			t.Errorf("%s is missing", name)
			continue
		}
		if got.GetType() != want.GetType() {
			t.Errorf("%s is a %v, Go's a %v", name, got.GetType(), want.GetType())
		}
		got_, want_ := samples(got), samples(want)
		if !slices.Equal(slices.Sorted(maps.Keys(got_)), slices.Sorted(maps.Keys(want_))) {
			t.Errorf("%s has labels\n%v\nGo's has\n%v", name, slices.Sorted(maps.Keys(got_)), slices.Sorted(maps.Keys(want_)))
		}
		for labels, want := range want_ {
			got, tolerance := got_[labels], 0.0
			switch name {
			case "asynq_queue_latency_seconds":
				tolerance = 10 // It grows between the two looks.
			case "asynq_queue_memory_usage_approx_bytes":
				tolerance = want / 10 // Go leaves out the sets of the groups.
			}
			if math.Abs(got-want) > tolerance {
				t.Errorf("%s{%s} is %v, Go's %v", name, labels, got, want)
			}
		}
	}
	for labels, want := range map[string]float64{
		`queue="m",state="active"`: 1, `queue="m",state="pending"`: 3, `queue="m",state="scheduled"`: 1,
		`queue="m",state="retry"`: 1, `queue="m",state="archived"`: 1, `queue="m",state="completed"`: 1,
	} {
		if got := samples(gos["asynq_tasks_enqueued_total"])[labels]; got != want {
			t.Errorf("the test is not what it should be: %s is %v", labels, got)
		}
	}
}

// TestMetricsOfOneBadQueueLeaveTheOthers: Go's exporter then shows nothing.
func TestMetricsOfOneBadQueueLeaveTheOthers(t *testing.T) {
	f := newFixture(t)
	f.enqueueID("ok", "a", asynq.Queue("good"))
	f.enqueueID("ok", "b", asynq.Queue("bad"))
	f.rdb.Del(ctx, queueKey("bad", "pending"))
	f.rdb.Set(ctx, queueKey("bad", "pending"), "text", 0)
	if gos := f.gatherGo(); len(gos) != 0 {
		t.Fatalf("Go's exporter has learned something: %v", gos)
	}
	ours := f.scrape(f.startExporter())
	if size := samples(ours["asynq_queue_size"]); len(size) != 1 || size[`queue="good"`] != 1 {
		t.Errorf("asynq_queue_size is %v", size)
	}
	up := samples(ours["asynq_queue_up"])
	if up[`queue="good"`] != 1 || up[`queue="bad"`] != 0 || len(up) != 2 {
		t.Errorf("asynq_queue_up is %v", up)
	}
}
