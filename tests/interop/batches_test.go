package interop

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
)

// rustBatch makes a batch in the queue `batched` and answers its id.
func (f *fixture) rustBatch(typ string, members int, more ...string) string {
	f.t.Helper()
	args := []string{"batch", "--redis", f.url, "--queue", "batched", "--type", typ, "--members", strconv.Itoa(members)}
	args = append(args, more...)
	out, refused := run(f.t, interopPeer(f.t), args...)
	if refused != nil {
		f.t.Fatalf("interop-peer %v: exit %d: %s", args, refused.code, refused.stderr)
	}
	return strings.TrimSpace(out)
}

func memberID(batch string, number int) string { return fmt.Sprintf("flow:%s:0:%d", batch, number) }

func ledgerKey(batch string) string { return "asynq:x:{" + batch + "}:0:flow" }

// ledger answers a field of the batch's hash, "" if it is absent.
func (f *fixture) ledger(batch, field string) string {
	f.t.Helper()
	fields, err := f.rdb.HGetAll(ctx, ledgerKey(batch)).Result()
	if err != nil {
		f.t.Fatal(err)
	}
	return fields[field]
}

// batchedIn answers the ids that the Inspector lists in a state.
func (f *fixture) batchedIn(state asynq.TaskState) map[string]bool {
	f.t.Helper()
	list := map[asynq.TaskState]func(string, ...asynq.ListOption) ([]*asynq.TaskInfo, error){
		asynq.TaskStatePending:   f.inspector.ListPendingTasks,
		asynq.TaskStateActive:    f.inspector.ListActiveTasks,
		asynq.TaskStateScheduled: f.inspector.ListScheduledTasks,
		asynq.TaskStateRetry:     f.inspector.ListRetryTasks,
		asynq.TaskStateArchived:  f.inspector.ListArchivedTasks,
		asynq.TaskStateCompleted: f.inspector.ListCompletedTasks,
	}[state]
	tasks, err := list("batched", asynq.PageSize(100))
	if err != nil {
		f.t.Fatalf("Go lists tasks that are %v: %v", state, err)
	}
	ids := map[string]bool{}
	for _, task := range tasks {
		ids[task.ID] = true
	}
	return ids
}

// Go alone works the members and the callback; the server of ours has another
// queue, and only leads.
func TestGoWorksMembersAndTheirCallback(t *testing.T) {
	t.Parallel()
	const members = 20
	f := newFixture(t)
	f.startRustWorker(1, []string{"other=1"})
	batch := f.rustBatch("ok", members)
	if pending := f.batchedIn(asynq.TaskStatePending); len(pending) != members || !pending[memberID(batch, 0)] {
		t.Errorf("Go lists as pending %v", pending)
	}
	server := f.startGoServer(nil, "batched")
	server.waitRun("flow:" + batch + ":0:success")
	f.eventually("the batch is over", func() bool { return f.ledger(batch, "over") != "" })

	want := map[string]bool{"flow:" + batch + ":0:success": true}
	for number := range members {
		want[memberID(batch, number)] = true
	}
	// A second callback would be there soon after the first.
	f.never(2*time.Second, "a task of the batch ran twice, or one that is not of it", func() bool {
		return len(server.ids()) != len(want)
	})
	for _, id := range server.ids() {
		if !want[id] {
			t.Errorf("Go ran %s", id)
		}
	}
	if succeeded := f.ledger(batch, "c4"); succeeded != strconv.Itoa(members) {
		t.Errorf("%s members have succeeded", succeeded)
	}
	f.eventually("what Go has completed is deleted", func() bool { return len(f.batchedIn(asynq.TaskStateCompleted)) == 0 })
}

func TestGoDeletesAMemberOfABatch(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.startRustWorker(1, []string{"other=1"})
	batch := f.rustBatch("hang", 3)
	if err := f.inspector.DeleteTask("batched", memberID(batch, 1)); err != nil {
		t.Fatalf("Go deletes a member: %v", err)
	}
	// As if nothing had been heard of it for an hour. The leader looks at a
	// tree in its own time; it is asked to do so now.
	long := time.Now().Add(-time.Hour).Unix()
	if err := f.rdb.HSet(ctx, ledgerKey(batch), "touched", long, "looked", long, "adding", 0).Err(); err != nil {
		t.Fatal(err)
	}
	duties := f.rdb.ZAddXX(ctx, "asynq:x:duties", redis.Z{Score: float64(time.Now().UnixMilli()), Member: "flow " + batch})
	if err := duties.Err(); err != nil {
		t.Fatal(err)
	}
	f.eventually("the member counts as removed", func() bool { return f.ledger(batch, "c6") == "1" })
	f.waitState("batched", "flow:"+batch+":0:death", asynq.TaskStatePending)
	if live := f.ledger(batch, "c2"); live != "2" {
		t.Errorf("%s members are live", live)
	}
	if fired := f.ledger(batch, "fired:success"); fired != "" {
		t.Error("the batch has succeeded")
	}
}

func TestGoListsMembersInEachState(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	// No server of ours runs, which would delete what is completed.
	states := map[string]asynq.TaskState{
		memberID(f.rustBatch("ok", 1), 0):                      asynq.TaskStateCompleted,
		memberID(f.rustBatch("fail", 1), 0):                    asynq.TaskStateRetry,
		memberID(f.rustBatch("skip", 1), 0):                    asynq.TaskStateArchived,
		memberID(f.rustBatch("hang", 1), 0):                    asynq.TaskStateActive,
		memberID(f.rustBatch("ok", 1, "--in-secs", "3600"), 0): asynq.TaskStateScheduled,
	}
	f.startGoServer(func(c *asynq.Config) {
		c.RetryDelayFunc = func(int, error, *asynq.Task) time.Duration { return time.Hour }
	}, "batched")
	for id, state := range states {
		f.waitState("batched", id, state)
	}
	if err := f.inspector.PauseQueue("batched"); err != nil {
		t.Fatal(err)
	}
	states[memberID(f.rustBatch("ok", 1), 0)] = asynq.TaskStatePending
	for id, state := range states {
		if !f.batchedIn(state)[id] {
			t.Errorf("Go does not list %s, which is %v", id, state)
		}
	}
	info, err := f.inspector.GetQueueInfo("batched")
	if err != nil || info.Size != len(states) {
		t.Errorf("Go reads the queue: %+v, %v", info, err)
	}
}
