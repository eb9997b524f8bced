package wire

import (
	"encoding/hex"
	"reflect"
	"testing"
)

// The vectors of the wire format description.
var vectors = map[string]struct {
	message Message
	fields  Fields
	hex     string
}{
	"task": {TaskMessage, Fields{
		"type": "email:send", "payload": Hex(`{"id":1}`), "id": "0e9b1f2a-0000-4000-8000-000000000001",
		"queue": "default", "retry": int64(25), "timeout": int64(1800),
	}, "0a0a656d61696c3a73656e6412087b226964223a317d1a2430653962316632612d303030302d343030302d383030302d303030303030303030303031220764656661756c74281940880e"},
	"task with every field": {TaskMessage, Fields{
		"type": "t", "payload": Hex{0, 255}, "id": "a", "queue": "q", "retry": int64(3), "retried": int64(1),
		"error_msg": "boom", "timeout": int64(30), "deadline": int64(1700003600),
		"unique_key":     "asynq:{q}:unique:t:d07d34efac6328007ad67c7e0a985e00",
		"last_failed_at": int64(1700000000), "retention": int64(3600), "completed_at": int64(1700000100),
		"group_key": "g", "headers": map[string]string{"k": "v"},
	}, "0a0174120200ff1a0161220171280330013a04626f6f6d401e4890fecfaa0652336173796e713a7b717d3a756e697175653a743a64303764333465666163363332383030376164363763376530613938356530305880e2cfaa0660901c68e4e2cfaa067201677a060a016b120176"},
	"server": {ServerInfo, Fields{
		"host": "h", "pid": int64(7), "server_id": "s", "concurrency": int64(10),
		"queues": map[string]int64{"default": 1}, "strict_priority": true, "status": "active",
		"start_time": Timestamp{1700000000, 5}, "active_worker_count": int64(2),
	}, "0a016810071a0173200a2a0b0a0764656661756c74100130013a0661637469766542080880e2cfaa0610054802"},
	"worker": {WorkerInfo, Fields{
		"host": "h", "pid": int64(7), "server_id": "s", "task_id": "a", "task_type": "t",
		"task_payload": Hex("p"), "queue": "q",
		"start_time": Timestamp{1700000000, 0}, "deadline": Timestamp{1700001800, 0},
	}, "0a016810071a01732201612a01743201703a017142060880e2cfaa064a060888f0cfaa06"},
	"scheduler entry": {SchedulerEntry, Fields{
		"id": "e", "spec": "@every 30s", "task_type": "t", "task_payload": Hex("p"),
		"enqueue_options":   []string{`Queue("low")`, `MaxRetry(3)`},
		"next_enqueue_time": Timestamp{1700000030, 0}, "prev_enqueue_time": Timestamp{-62135596800, 0},
	}, "0a0165120a406576657279203330731a01742201702a0c517565756528226c6f7722292a0b4d617852657472792833293206089ee2cfaa063a0b088092b8c398feffffff01"},
	"enqueue event": {SchedulerEnqueueEvent, Fields{
		"task_id": "a", "enqueue_time": Timestamp{1700000000, 1},
	}, "0a016112080880e2cfaa061001"},
}

func TestEncodeGivesThePublishedBytes(t *testing.T) {
	for name, v := range vectors {
		if got := hex.EncodeToString(v.message.Encode(v.fields)); got != v.hex {
			t.Errorf("%s: got %s, want %s", name, got, v.hex)
		}
	}
}

func TestDecodeGivesThePublishedFields(t *testing.T) {
	for name, v := range vectors {
		data, err := hex.DecodeString(v.hex)
		if err != nil {
			t.Fatal(err)
		}
		got, err := v.message.Decode(data)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for key, want := range v.fields {
			if !reflect.DeepEqual(got[key], want) {
				t.Errorf("%s: %s is %v, want %v", name, key, got[key], want)
			}
		}
	}
}

func TestDecodeRefusesUnknownFields(t *testing.T) {
	data := append(TaskMessage.Encode(Fields{"type": "t"}), 0x80, 0x01, 0x01) // field 16
	if _, err := TaskMessage.Decode(data); err == nil {
		t.Error("field 16 was accepted")
	}
}
