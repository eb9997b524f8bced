package interop

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"
)

// Go alone works the nodes; the server of ours has another queue, and only
// leads. A Go handler finds what its parents have left by asynq's own
// Inspector.
func TestGoWorksTheNodesOfAWorkflow(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.startRustWorker(1, []string{"other=1"})
	file := filepath.Join(t.TempDir(), "flow.json")
	text := `{"id": "goflow", "nodes": [
		{"name": "first", "type": "result", "payload": "left by Go", "queue": "nodes"},
		{"name": "dead", "type": "skip", "queue": "nodes", "after": ["first"]},
		{"name": "never", "type": "ok", "queue": "nodes", "after": ["dead"]},
		{"name": "both", "tasks": [{"type": "ok", "queue": "nodes"}, {"type": "ok", "queue": "nodes"}], "after": ["first"]},
		{"name": "last", "type": "ok", "queue": "nodes", "after": ["first", "both"], "after_failure": ["dead"]}
	]}`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	server := f.startGoServer(nil, "nodes")
	if id := strings.TrimSpace(f.queuectl("workflow", "create", "--from", file)); id != "goflow" {
		t.Fatalf("it is called %q", id)
	}
	f.eventually("what can run has run", func() bool { return f.ledger("goflow", "c4") == "2" })
	// Go's failures are noticed when nothing else happens: as if nothing had
	// been heard of it for an hour, and the leader looked now.
	long := time.Now().Add(-time.Hour).Unix()
	if err := f.rdb.HSet(ctx, ledgerKey("goflow"), "touched", long, "looked", long, "adding", 0).Err(); err != nil {
		t.Fatal(err)
	}
	now := redis.Z{Score: float64(time.Now().UnixMilli()), Member: "flow goflow"}
	if err := f.rdb.ZAddXX(ctx, "asynq:x:duties", now).Err(); err != nil {
		t.Fatal(err)
	}
	f.eventually("the workflow is over", func() bool { return f.ledger("goflow", "over") != "" })

	nodes := map[string]string{}
	var shown struct {
		State string
		Nodes []struct{ Name, State, ID string }
	}
	if err := json.Unmarshal([]byte(f.queuectl("workflow", "show", "goflow", "--json")), &shown); err != nil {
		t.Fatal(err)
	}
	ids := map[string]string{}
	for _, node := range shown.Nodes {
		nodes[node.Name], ids[node.Name] = node.State, node.ID
	}
	want := map[string]string{
		"first": "succeeded", "dead": "dead", "never": "skipped", "both": "succeeded", "last": "succeeded",
	}
	for name, state := range want {
		if nodes[name] != state {
			t.Errorf("%s is %s, want %s", name, nodes[name], state)
		}
	}
	if shown.State != "dead" {
		t.Errorf("the workflow is %s", shown.State)
	}
	if ran := server.ids(); len(ran) != 5 {
		t.Errorf("Go ran %v", ran)
	}

	// What a Go handler does to read the result of a parent.
	var parents map[string]struct{ Queue, ID, Batch string }
	if err := json.Unmarshal([]byte(server.waitRun(ids["last"]).headers["x-flow-input"]), &parents); err != nil {
		t.Fatal(err)
	}
	if len(parents) != 3 || !strings.HasPrefix(parents["both"].Batch, "goflow:") {
		t.Errorf("the last one is told of %+v", parents)
	}
	first, err := f.inspector.GetTaskInfo(parents["first"].Queue, parents["first"].ID)
	if err != nil || string(first.Result) != `"left by Go"` && string(first.Result) != "left by Go" {
		t.Errorf("the result of the first one: %+v, %v", first, err)
	}

	// Run again by Go's Inspector, the dead one dies once more, and the rest
	// stays as it is.
	if err := f.inspector.RunTask("nodes", ids["dead"]); err != nil {
		t.Fatal(err)
	}
	f.eventually("it has run again", func() bool { return len(server.ids()) == 6 })
	f.waitState("nodes", ids["dead"], asynq.TaskStateArchived)
	if never := f.ledger("goflow", "c8"); never != "1" {
		t.Errorf("%s nodes are skipped", never)
	}
}
