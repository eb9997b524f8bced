// Package wire decodes the protobuf messages asynq stores in Redis, from
// nothing but the published field numbers. It shares no code with asynq, so
// a disagreement between the two shows.
package wire

import "google.golang.org/protobuf/encoding/protowire"

type kind int

const (
	kindString kind = iota
	kindBytes
	kindInt
	kindBool
	kindTimestamp
	kindStrings
	kindStringMap
	kindIntMap
)

type field struct {
	number protowire.Number
	name   string
	kind   kind
}

// Message describes one message type. Fields are in ascending number.
type Message struct {
	Name   string
	fields []field
}

// Timestamp is a google.protobuf.Timestamp.
type Timestamp struct {
	Seconds int64 `json:"seconds"`
	Nanos   int64 `json:"nanos"`
}

// The messages of asynq.
var (
	TaskMessage = Message{"TaskMessage", []field{
		{1, "type", kindString},
		{2, "payload", kindBytes},
		{3, "id", kindString},
		{4, "queue", kindString},
		{5, "retry", kindInt},
		{6, "retried", kindInt},
		{7, "error_msg", kindString},
		{8, "timeout", kindInt},
		{9, "deadline", kindInt},
		{10, "unique_key", kindString},
		{11, "last_failed_at", kindInt},
		{12, "retention", kindInt},
		{13, "completed_at", kindInt},
		{14, "group_key", kindString},
		{15, "headers", kindStringMap},
	}}
	ServerInfo = Message{"ServerInfo", []field{
		{1, "host", kindString},
		{2, "pid", kindInt},
		{3, "server_id", kindString},
		{4, "concurrency", kindInt},
		{5, "queues", kindIntMap},
		{6, "strict_priority", kindBool},
		{7, "status", kindString},
		{8, "start_time", kindTimestamp},
		{9, "active_worker_count", kindInt},
	}}
	WorkerInfo = Message{"WorkerInfo", []field{
		{1, "host", kindString},
		{2, "pid", kindInt},
		{3, "server_id", kindString},
		{4, "task_id", kindString},
		{5, "task_type", kindString},
		{6, "task_payload", kindBytes},
		{7, "queue", kindString},
		{8, "start_time", kindTimestamp},
		{9, "deadline", kindTimestamp},
	}}
	SchedulerEntry = Message{"SchedulerEntry", []field{
		{1, "id", kindString},
		{2, "spec", kindString},
		{3, "task_type", kindString},
		{4, "task_payload", kindBytes},
		{5, "enqueue_options", kindStrings},
		{6, "next_enqueue_time", kindTimestamp},
		{7, "prev_enqueue_time", kindTimestamp},
	}}
	SchedulerEnqueueEvent = Message{"SchedulerEnqueueEvent", []field{
		{1, "task_id", kindString},
		{2, "enqueue_time", kindTimestamp},
	}}
)

var (
	timestamp = Message{"Timestamp", []field{
		{1, "seconds", kindInt},
		{2, "nanos", kindInt},
	}}
	stringEntry = Message{"map entry", []field{
		{1, "key", kindString},
		{2, "value", kindString},
	}}
	intEntry = Message{"map entry", []field{
		{1, "key", kindString},
		{2, "value", kindInt},
	}}
)

// zero is what a decoder reports for an absent field.
func (k kind) zero() any {
	switch k {
	case kindString:
		return ""
	case kindBytes:
		return Hex(nil)
	case kindInt:
		return int64(0)
	case kindBool:
		return false
	case kindStrings:
		return []string{}
	case kindStringMap:
		return map[string]string{}
	case kindIntMap:
		return map[string]int64{}
	default: // An absent timestamp is not the same as a zero one.
		return nil
	}
}
