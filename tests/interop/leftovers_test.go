package interop

import (
	"regexp"
	"slices"
	"strings"
)

var daySuffix = regexp.MustCompile(`\d{4}-\d\d-\d\d$`)

// keys answers all keys, with the day in a counter's name blanked out.
func (f *fixture) keys() []string {
	f.t.Helper()
	keys, err := f.rdb.Keys(ctx, "*").Result()
	if err != nil {
		f.t.Fatal(err)
	}
	for i, key := range keys {
		keys[i] = daySuffix.ReplaceAllString(key, "<day>")
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// assertOnlyCounters checks that all work left without a trace: nothing but
// the queues' names and counters. No server may be running.
func (f *fixture) assertOnlyCounters(queues ...string) {
	f.t.Helper()
	want := []string{"asynq:queues"}
	for _, queue := range queues {
		want = append(want, queueKey(queue, "processed"), queueKey(queue, "processed:<day>"))
	}
	slices.Sort(want)
	if got := f.keys(); !slices.Equal(got, want) {
		f.t.Errorf("keys left:\n  %s\nwant:\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
	members, err := f.rdb.SMembers(ctx, "asynq:queues").Result()
	if err != nil {
		f.t.Fatal(err)
	}
	slices.Sort(members)
	slices.Sort(queues)
	if !slices.Equal(members, queues) {
		f.t.Errorf("asynq:queues has %q, want %q", members, queues)
	}
}

// assertCount checks a counter of a queue, "processed" or "failed".
func (f *fixture) assertCount(queue, name, want string) {
	f.t.Helper()
	if got := f.get(queueKey(queue, name)); got != want {
		f.t.Errorf("counter %s of queue %s is %q, want %q", name, queue, got, want)
	}
}
