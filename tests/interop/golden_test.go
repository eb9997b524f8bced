package interop

import (
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"testing"

	"queue.test/interop/internal/wire"
)

// The checked-in vectors say of their bytes what the bytes say.
func TestGoldenVectorsDecodeToTheirFields(t *testing.T) {
	t.Parallel()
	messages := map[string]wire.Message{}
	for _, m := range []wire.Message{
		wire.TaskMessage, wire.ServerInfo, wire.WorkerInfo, wire.SchedulerEntry, wire.SchedulerEnqueueEvent,
	} {
		messages[m.Name] = m
	}
	for _, file := range []string{"task_messages.json", "servers.json", "schedulers.json"} {
		data, err := os.ReadFile(filepath.Join("..", "golden", file))
		if err != nil {
			t.Fatal(err)
		}
		var vectors []struct {
			Name, Message, Hex string
			Fields             any
		}
		if err := json.Unmarshal(data, &vectors); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		if len(vectors) == 0 {
			t.Errorf("%s is empty", file)
		}
		for _, v := range vectors {
			data, err := hex.DecodeString(v.Hex)
			if err != nil {
				t.Fatalf("%s: %v", v.Name, err)
			}
			fields, err := messages[v.Message].Decode(data)
			if err != nil {
				t.Errorf("%s: %v", v.Name, err)
			} else if !reflect.DeepEqual(throughJSON(t, fields), v.Fields) {
				t.Errorf("%s: the bytes say %v, the file says %v", v.Name, fields, v.Fields)
			}
		}
	}
}

func throughJSON(t *testing.T, value any) any {
	t.Helper()
	data, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	var out any
	if err := json.Unmarshal(data, &out); err != nil {
		t.Fatal(err)
	}
	return out
}
