package interop

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"queue.test/interop/internal/wire"
)

// leaf is one fact about a key space: a text, or a time as the distance from
// the moment of the dump.
type leaf struct {
	text   string
	isTime bool
	offset time.Duration
}

func (l leaf) String() string {
	if l.isTime {
		return "a time " + l.offset.Round(time.Second).String() + " from now"
	}
	return strconv.Quote(l.text)
}

// keyspace is a flat picture of a whole Redis. Paths are key names with
// what is inside the key appended.
type keyspace map[string]leaf

// isOfServer tells whether a key is what a server says of itself.
func isOfServer(key string) bool {
	return slices.ContainsFunc([]string{"asynq:servers", "asynq:workers", "asynq:x:servers"}, func(name string) bool {
		return strings.HasPrefix(key, name)
	})
}

// dump reads everything but the state of servers, and who did what.
func (f *fixture) dump() keyspace {
	f.t.Helper()
	d := dumper{f: f, now: time.Now(), out: keyspace{}}
	for _, key := range d.must(f.rdb.Keys(ctx, "*").Result()) {
		if isOfServer(key) || key == "asynq:x:audit" {
			continue
		}
		d.key(key)
	}
	return d.out
}

type dumper struct {
	f   *fixture
	now time.Time
	out keyspace
}

func (d dumper) must(values []string, err error) []string {
	d.f.t.Helper()
	if err != nil {
		d.f.t.Fatal(err)
	}
	return values
}

func (d dumper) text(path, value string) { d.out[path] = leaf{text: value} }

func (d dumper) time(path string, at time.Time) {
	d.out[path] = leaf{isTime: true, offset: at.Sub(d.now)}
}

func (d dumper) key(key string) {
	d.f.t.Helper()
	rdb := d.f.rdb
	name := daySuffix.ReplaceAllString(key, "<day>")
	kind := rdb.Type(ctx, key).Val()
	d.text(name+" type", kind)
	if ttl := rdb.PTTL(ctx, key).Val(); ttl > 0 {
		d.time(name+" expires", d.now.Add(ttl))
	}
	switch kind {
	case "list": // The order matters.
		d.text(name+" items", strings.Join(d.must(rdb.LRange(ctx, key, 0, -1).Result()), " "))
	case "set":
		d.text(name+" members", strings.Join(slices.Sorted(slices.Values(d.must(rdb.SMembers(ctx, key).Result()))), " "))
	case "zset":
		d.scores(name, key)
	case "string":
		if value := rdb.Get(ctx, key).Val(); strings.HasSuffix(key, ":paused") {
			d.seconds(name+" value", value)
		} else {
			d.text(name+" value", value)
		}
	case "hash":
		fields := rdb.HGetAll(ctx, key).Val()
		for _, field := range slices.Sorted(maps.Keys(fields)) {
			d.hashField(name+" "+field, field, fields[field])
		}
	}
}

// scores reads the raw texts: asynq's readers insist on whole numbers.
func (d dumper) scores(name, key string) {
	d.f.t.Helper()
	reply, err := d.f.rdb.Eval(ctx, "return redis.call('ZRANGE', KEYS[1], 0, -1, 'WITHSCORES')", []string{key}).StringSlice()
	pairs := d.must(reply, err)
	for i := 0; i+1 < len(pairs); i += 2 {
		d.seconds(name+" score of "+pairs[i], pairs[i+1])
	}
}

// seconds is a Unix time in whole seconds, kept as text if it is not.
func (d dumper) seconds(path, value string) {
	if at, err := strconv.ParseInt(value, 10, 64); err == nil && len(value) == 10 {
		d.time(path, time.Unix(at, 0))
	} else {
		d.text(path, "not in whole seconds: "+value)
	}
}

func (d dumper) hashField(path, field, value string) {
	d.f.t.Helper()
	switch field {
	case "pending_since":
		if at, err := strconv.ParseInt(value, 10, 64); err == nil && len(value) == 19 {
			d.time(path, time.Unix(0, at))
		} else {
			d.text(path, "not in nanoseconds: "+value)
		}
	case "msg":
		fields, err := wire.TaskMessage.Decode([]byte(value))
		if err != nil {
			d.f.t.Fatalf("%s: %v", path, err)
		}
		for name, value := range fields {
			at, isNumber := value.(int64)
			if isNumber && at != 0 && strings.HasSuffix(name, "_at") {
				d.time(path+"."+name, time.Unix(at, 0))
			} else if payload, isBytes := value.(wire.Hex); isBytes {
				d.text(path+"."+name, string(payload))
			} else {
				d.text(path+"."+name, fmt.Sprint(value))
			}
		}
	default:
		d.text(path, value)
	}
}

// differences compares two dumps. Times are the same up to 10 s.
func differences(goSide, rustSide keyspace) []string {
	var out []string
	paths := maps.Clone(goSide)
	maps.Copy(paths, rustSide)
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		inGo, hasGo := goSide[path]
		inRust, hasRust := rustSide[path]
		switch {
		case !hasGo && allowedExtra(path, rustSide):
		case !hasGo:
			out = append(out, fmt.Sprintf("%s: only Rust has it: %v", path, inRust))
		case !hasRust && leftOutOnPurpose[path]:
		case !hasRust:
			out = append(out, fmt.Sprintf("%s: only Go has it: %v", path, inGo))
		case inGo.isTime != inRust.isTime, inGo.text != inRust.text,
			(inGo.offset - inRust.offset).Abs() > 10*time.Second:
			out = append(out, fmt.Sprintf("%s: Go has %v, Rust has %v", path, inGo, inRust))
		}
	}
	return out
}

// allowedExtra is what Rust may write on top: the owner of an active task, and
// the fields below.
func allowedExtra(path string, rustSide keyspace) bool {
	if extraOnPurpose[path] {
		return true
	}
	task, isOwner := strings.CutSuffix(path, " owner")
	return isOwner && rustSide[task+" state"].text == "active"
}

// extraOnPurpose has the fields that Go leaves out, to its own loss. Go reads
// all but the last where it finds them.
var extraOnPurpose = map[string]bool{
	// Without it Go shows no latency for a queue whose oldest task was put back.
	taskKey(seqQueue, "q1") + " pending_since": true,
	// The same for tasks that somebody has run.
	taskKey(seqQueue, "i1") + " pending_since": true,
	taskKey(seqQueue, "i5") + " pending_since": true,
	// Without it Go does not release the lock of a task deleted from its group.
	taskKey(seqQueue, "grouped-unique") + " unique_key": true,
	// Without it we would forget the group when the task's time comes, as Go
	// does. Go does not read it.
	taskKey(seqQueue, "later-grouped") + " x_group": true,
}

// leftOutOnPurpose has the fields that Go leaves behind, to its own loss.
var leftOutOnPurpose = map[string]bool{
	// Should Go run the archived task again, it would show the time it first
	// became pending as its latency.
	taskKey(seqQueue, "i2") + " pending_since": true,
}
