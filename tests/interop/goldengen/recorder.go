package main

import (
	"context"
	"encoding/hex"
	"fmt"
	"reflect"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"queue.test/interop/internal/redistest"
	"queue.test/interop/internal/wire"
)

// vector is one message as asynq wrote it. The keys below `fields` are only
// there for task messages.
type vector struct {
	Name    string `json:"name"`
	Message string `json:"message"`
	Hex     string `json:"hex"`
	// Canonical says that writing the fields in ascending number, maps in
	// ascending key, gives exactly these bytes.
	Canonical bool        `json:"canonical"`
	Fields    wire.Fields `json:"fields"`

	State      string            `json:"state,omitempty"`
	UniqueKey  *string           `json:"unique_key,omitempty"`
	Lock       *lock             `json:"lock,omitempty"`
	Container  *container        `json:"container,omitempty"`
	HashFields map[string]string `json:"hash_fields,omitempty"`
}

// lock is the content of the key named by unique_key.
type lock struct {
	Value   string `json:"value"`
	TTLSecs int64  `json:"ttl_secs"`
}

// container is where the task's id was. Lists have no score.
type container struct {
	Key   string `json:"key"`
	Score *int64 `json:"score"`
}

type recorder struct {
	opt       asynq.RedisClientOpt
	rdb       *redis.Client
	client    *asynq.Client
	inspector *asynq.Inspector
	vectors   []vector
}

func newRecorder(server *redistest.Server) *recorder {
	return &recorder{
		opt:       server.Asynq(),
		rdb:       server.Client(),
		client:    asynq.NewClient(server.Asynq()),
		inspector: asynq.NewInspector(server.Asynq()),
	}
}

func (r *recorder) close() {
	r.inspector.Close()
	r.client.Close()
	r.rdb.Close()
}

var ctx = context.Background()

// add decodes the bytes, checks the fields that are known, and keeps the lot.
func (r *recorder) add(name string, message wire.Message, data []byte, want wire.Fields) (*vector, error) {
	fields, err := message.Decode(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	for key, value := range want {
		if !reflect.DeepEqual(fields[key], value) {
			return nil, fmt.Errorf("%s: field %s is %#v, want %#v", name, key, fields[key], value)
		}
	}
	r.vectors = append(r.vectors, vector{
		Name:      name,
		Message:   message.Name,
		Hex:       hex.EncodeToString(data),
		Canonical: string(message.Encode(fields)) == string(data),
		Fields:    fields,
	})
	return &r.vectors[len(r.vectors)-1], nil
}

// addTask records the task hash, its place and its lock as they are now.
func (r *recorder) addTask(name, queue, id, state string, want wire.Fields) error {
	hash, err := r.rdb.HGetAll(ctx, taskKey(queue, id)).Result()
	if err != nil {
		return err
	}
	if hash["state"] != state {
		return fmt.Errorf("%s: state is %q, want %q", name, hash["state"], state)
	}
	v, err := r.add(name, wire.TaskMessage, []byte(hash["msg"]), want)
	if err != nil {
		return err
	}
	delete(hash, "msg")
	if result, ok := hash["result"]; ok {
		hash["result"] = hex.EncodeToString([]byte(result))
	}
	uniqueKey := v.Fields["unique_key"].(string)
	v.State, v.UniqueKey, v.HashFields = state, &uniqueKey, hash
	if v.Container, err = r.find(queue, id, state, hash["group"]); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if uniqueKey == "" {
		return nil
	}
	holder, err := r.rdb.Get(ctx, uniqueKey).Result()
	if err == redis.Nil {
		return nil
	}
	if err != nil {
		return err
	}
	ttl, err := r.rdb.TTL(ctx, uniqueKey).Result()
	v.Lock = &lock{Value: holder, TTLSecs: int64(ttl.Seconds())}
	return err
}

// find reads the position of an id, whose key follows from the state.
func (r *recorder) find(queue, id, state, group string) (*container, error) {
	key := queueKey(queue, state)
	switch state {
	case "pending", "active":
		ids, err := r.rdb.LRange(ctx, key, 0, -1).Result()
		if err != nil {
			return nil, err
		}
		for _, member := range ids {
			if member == id {
				return &container{Key: key}, nil
			}
		}
		return nil, fmt.Errorf("%q is not in %s", id, key)
	case "aggregating":
		key = queueKey(queue, "g:"+group)
	}
	score, err := r.rdb.ZScore(ctx, key, id).Result()
	if err != nil {
		return nil, fmt.Errorf("%q in %s: %w", id, key, err)
	}
	whole := int64(score)
	return &container{Key: key, Score: &whole}, nil
}

func queueKey(queue, rest string) string { return "asynq:{" + queue + "}:" + rest }

func taskKey(queue, id string) string { return queueKey(queue, "t:"+id) }

// wait polls until the condition holds.
func wait(what string, condition func() (bool, error)) error {
	deadline := time.Now().Add(30 * time.Second)
	for {
		done, err := condition()
		if err != nil {
			return fmt.Errorf("waiting until %s: %w", what, err)
		}
		if done {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("gave up waiting until %s", what)
		}
		time.Sleep(10 * time.Millisecond)
	}
}
