package interop

import (
	"reflect"
	"time"

	"github.com/hibiken/asynq"
)

// assertInfo compares what the Go inspector reads, field by field.
func assertInfo(f *fixture, got *asynq.TaskInfo, want asynq.TaskInfo) {
	f.t.Helper()
	fields := []struct {
		name      string
		got, want any
	}{
		{"ID", got.ID, want.ID},
		{"Queue", got.Queue, want.Queue},
		{"Type", got.Type, want.Type},
		{"Payload", string(got.Payload), string(want.Payload)},
		{"State", got.State, want.State},
		{"MaxRetry", got.MaxRetry, want.MaxRetry},
		{"Retried", got.Retried, want.Retried},
		{"LastErr", got.LastErr, want.LastErr},
		{"LastFailedAt", got.LastFailedAt, want.LastFailedAt},
		{"Timeout", got.Timeout, want.Timeout},
		{"Deadline", got.Deadline.UTC(), want.Deadline.UTC()},
		{"Group", got.Group, want.Group},
		{"IsOrphaned", got.IsOrphaned, want.IsOrphaned},
		{"Retention", got.Retention, want.Retention},
		{"CompletedAt", got.CompletedAt, want.CompletedAt},
		{"Result", string(got.Result), string(want.Result)},
	}
	for _, field := range fields {
		if !reflect.DeepEqual(field.got, field.want) {
			f.t.Errorf("task %s: Go reads %s %v, want %v", want.ID, field.name, field.got, field.want)
		}
	}
	// An absent map reads as nil.
	if len(got.Headers)+len(want.Headers) > 0 && !reflect.DeepEqual(got.Headers, want.Headers) {
		f.t.Errorf("task %s: Go reads Headers %q, want %q", want.ID, got.Headers, want.Headers)
	}
	if got.State == asynq.TaskStateScheduled && !near(got.NextProcessAt, want.NextProcessAt, 5*time.Second) {
		f.t.Errorf("task %s: Go reads NextProcessAt %v, want %v", want.ID, got.NextProcessAt, want.NextProcessAt)
	}
	if got.State == asynq.TaskStateAggregating && !got.NextProcessAt.IsZero() {
		f.t.Errorf("task %s: Go reads NextProcessAt %v of an aggregating task", want.ID, got.NextProcessAt)
	}
}

// near says whether two times are at most so far apart.
func near(a, b time.Time, tolerance time.Duration) bool {
	return a.Sub(b).Abs() <= tolerance
}
