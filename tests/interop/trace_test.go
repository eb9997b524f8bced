package interop

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/hibiken/asynq"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"queue.test/interop/internal/child"
)

// span is what the Rust side prints.
type span struct {
	TraceID    string `json:"trace_id"`
	SpanID     string `json:"span_id"`
	ParentID   string `json:"parent_id"`
	TraceState string `json:"trace_state"`
}

func (f *fixture) peerSpan(command, queue, id string) span {
	f.t.Helper()
	cmd := child.Command(interopPeer(f.t), command, "--redis", f.url, "--queue", queue, "--task-id", id)
	out, err := cmd.Output()
	if err != nil {
		f.t.Fatalf("interop-peer %s: %v", command, err)
	}
	var printed span
	if err := json.Unmarshal(out, &printed); err != nil {
		f.t.Fatalf("interop-peer %s prints %q: %v", command, out, err)
	}
	return printed
}

// w3c is how OpenTelemetry for Go reads and writes contexts.
var w3c = propagation.TraceContext{}

func TestGoHandlerReadsTheTraceOfARustClient(t *testing.T) {
	f := newFixture(t)
	enqueued := f.peerSpan("trace-enqueue", "tr", "a")
	seen := make(chan trace.SpanContext, 1)
	server := asynq.NewServer(f.opt, asynq.Config{Concurrency: 1, Queues: map[string]int{"tr": 1}, LogLevel: asynq.FatalLevel})
	err := server.Start(asynq.HandlerFunc(func(_ context.Context, task *asynq.Task) error {
		got := w3c.Extract(context.Background(), propagation.MapCarrier(task.Headers()))
		seen <- trace.SpanContextFromContext(got)
		return nil
	}))
	if err != nil {
		t.Fatal(err)
	}
	defer server.Shutdown()
	got := <-seen
	if !got.IsValid() || !got.IsRemote() || !got.IsSampled() {
		t.Errorf("Go reads %+v", got)
	}
	if got.TraceID().String() != enqueued.TraceID || got.SpanID().String() != enqueued.SpanID {
		t.Errorf("Go reads trace %s, span %s; Rust wrote %+v", got.TraceID(), got.SpanID(), enqueued)
	}
}

func TestRustHandlerContinuesTheTraceOfAGoClient(t *testing.T) {
	f := newFixture(t)
	state, err := trace.ParseTraceState("vendor=1,other=2")
	if err != nil {
		t.Fatal(err)
	}
	caller := trace.NewSpanContext(trace.SpanContextConfig{
		TraceID:    trace.TraceID{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16},
		SpanID:     trace.SpanID{1, 2, 3, 4, 5, 6, 7, 8},
		TraceFlags: trace.FlagsSampled,
		TraceState: state,
	})
	headers := propagation.MapCarrier{}
	w3c.Inject(trace.ContextWithSpanContext(ctx, caller), headers)
	if len(headers) != 2 {
		t.Fatalf("the test is not what it should be: %v", headers)
	}
	f.enqueueTask(asynq.NewTaskWithHeaders("traced", nil, headers), asynq.Queue("tr"), asynq.TaskID("b"))
	worked := f.peerSpan("trace-work", "tr", "b")
	if worked.TraceID != caller.TraceID().String() || worked.ParentID != caller.SpanID().String() {
		t.Errorf("Rust goes on with %+v; Go began trace %s, span %s", worked, caller.TraceID(), caller.SpanID())
	}
	if worked.TraceState != state.String() {
		t.Errorf("the trace state is %q, Go's %q", worked.TraceState, state.String())
	}
}
