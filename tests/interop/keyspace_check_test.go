package interop

import (
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
)

// The comparison must see each kind of difference, or it proves nothing.
func TestKeyspaceComparisonSeesDifferences(t *testing.T) {
	t.Parallel()
	changes := []struct {
		name   string
		change []any
		sees   string
	}{
		{"an extra key", []any{"SET", "asynq:{seq}:extra", "1"}, "asynq:{seq}:extra type"},
		{"an extra field", []any{"HSET", taskKey("seq", "a"), "extra", "1"}, "t:a extra"},
		{"an owner of a task that is not active", []any{"HSET", taskKey("seq", "a"), "owner", "1"}, "t:a owner"},
		{"another state", []any{"HSET", taskKey("seq", "a"), "state", "retry"}, "t:a state"},
		{"milliseconds", []any{"HSET", taskKey("seq", "a"), "pending_since", "1700000000000"}, "t:a pending_since"},
		{"another order", []any{"LMOVE", queueKey("seq", "pending"), queueKey("seq", "pending"), "LEFT", "RIGHT"}, "pending items"},
		{"a fractional score", []any{"ZADD", queueKey("seq", "scheduled"), "1700000000.5", "later"}, "score of later"},
		{"a later score", []any{"ZINCRBY", queueKey("seq", "scheduled"), "60", "later"}, "score of later"},
		{"another member", []any{"SADD", "asynq:queues", "more"}, "asynq:queues members"},
		{"a lifetime", []any{"EXPIRE", taskKey("seq", "a"), "1000"}, "t:a expires"},
		{"a lock without end", []any{"PERSIST", lockKey("seq", "job", "p")}, "expires"},
	}
	write := func(f *fixture) {
		f.enqueue("job", []byte("p"), asynq.Queue("seq"), asynq.TaskID("a"), asynq.Unique(time.Hour))
		f.enqueue("job", nil, asynq.Queue("seq"), asynq.TaskID("b"))
		f.enqueue("job", nil, asynq.Queue("seq"), asynq.TaskID("later"), asynq.ProcessIn(time.Hour))
	}
	first := newFixture(t)
	write(first)
	want := first.dump()
	second := newFixture(t)
	for _, c := range changes {
		second.rdb.FlushAll(ctx)
		second.client.Close()
		second.client = asynq.NewClient(second.opt)
		write(second)
		if found := differences(want, second.dump()); len(found) > 0 {
			t.Fatalf("two equal key spaces differ: %q", found)
		}
		if err := second.rdb.Do(ctx, c.change...).Err(); err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		found := strings.Join(differences(want, second.dump()), "\n")
		if !strings.Contains(found, c.sees) {
			t.Errorf("%s is not seen: %q", c.name, found)
		}
	}
}
