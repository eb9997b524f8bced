package interop

import (
	"context"
	"errors"
	"time"

	"github.com/hibiken/asynq"
)

const seqQueue = "seq"

// goSequence drives the real asynq through a sequence. Where Rust calls a
// broker step by step, Go needs a server that comes to the same.
type goSequence struct {
	*fixture
	server *asynq.Server
}

// put enqueues a task of the sequence.
func (s *goSequence) put(id, payload string, opts ...asynq.Option) {
	s.t.Helper()
	if err := s.tryPut(id, payload, nil, opts...); err != nil {
		s.t.Fatalf("Go enqueues %s: %v", id, err)
	}
}

func (s *goSequence) tryPut(id, payload string, headers map[string]string, opts ...asynq.Option) error {
	var data []byte
	if payload != "" {
		data = []byte(payload)
	}
	opts = append([]asynq.Option{asynq.Queue(seqQueue), asynq.TaskID(id)}, opts...)
	_, err := s.client.Enqueue(asynq.NewTaskWithHeaders("job", data, headers), opts...)
	return err
}

// serve starts a server of one worker. The handler gets the task's id.
func (s *goSequence) serve(change func(*asynq.Config), handle func(ctx context.Context, id string, task *asynq.Task) error) {
	s.t.Helper()
	config := goConfig()
	config.Concurrency = 1
	config.Queues = map[string]int{seqQueue: 1}
	config.RetryDelayFunc = func(int, error, *asynq.Task) time.Duration { return time.Hour }
	if change != nil {
		change(&config)
	}
	s.server = asynq.NewServer(s.opt, config)
	err := s.server.Start(asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
		id, _ := asynq.GetTaskID(ctx)
		return handle(ctx, id, task)
	}))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(s.server.Shutdown)
}

func succeed(context.Context, string, *asynq.Task) error { return nil }

func hang(ctx context.Context, _ string, _ *asynq.Task) error {
	<-ctx.Done()
	return ctx.Err()
}

// archivedAs fails without retries, with no more text than its own.
type archivedAs string

func (e archivedAs) Error() string { return string(e) }

func (e archivedAs) Is(target error) bool { return target == asynq.SkipRetry }

func (s *goSequence) enqueueAll() {
	lock := asynq.Unique(30 * time.Minute)
	later := asynq.ProcessIn(time.Hour)
	s.put("plain", `{"n":1}`)
	s.put("bare", "")
	err := s.tryPut("full", "f", map[string]string{"a": "1"}, asynq.MaxRetry(3), asynq.Timeout(90*time.Second),
		asynq.Deadline(time.Unix(4_102_444_800, 0)), asynq.Retention(2*time.Hour))
	if err != nil {
		s.t.Fatal(err)
	}
	s.put("later", "l", later)
	s.put("unique", "u1", lock)
	s.put("unique-later", "u2", lock, later)
	s.put("grouped", "g", asynq.Group("g"))
	s.put("grouped-unique", "u3", asynq.Group("g"), lock)
	s.put("later-grouped", "lg", asynq.Group("g"), later)
	if err := s.tryPut("plain", `{"n":1}`, nil); !errors.Is(err, asynq.ErrTaskIDConflict) {
		s.t.Fatalf("an id again: %v", err)
	}
	if err := s.tryPut("second", "u1", nil, lock); !errors.Is(err, asynq.ErrDuplicateTask) {
		s.t.Fatalf("a duplicate: %v", err)
	}
}

func (s *goSequence) done() {
	s.put("d1", "d", asynq.Unique(30*time.Minute))
	s.serve(nil, succeed)
	s.waitGone(seqQueue, "d1")
}

func (s *goSequence) complete() {
	s.serve(nil, func(_ context.Context, id string, task *asynq.Task) error {
		if id != "c1" {
			return nil
		}
		_, err := task.ResultWriter().Write([]byte("res"))
		return err
	})
	s.put("c1", "c", asynq.Unique(30*time.Minute), asynq.Retention(2*time.Hour))
	s.waitState(seqQueue, "c1", asynq.TaskStateCompleted)
	s.put("c2", "", asynq.Retention(2*time.Hour))
	s.waitState(seqQueue, "c2", asynq.TaskStateCompleted)
}

func (s *goSequence) retry() {
	s.serve(nil, func(_ context.Context, id string, _ *asynq.Task) error {
		if id == "r2" {
			return errWithoutPenalty
		}
		return errors.New("boom")
	})
	if err := s.tryPut("r1", "r", map[string]string{"a": "1"}, asynq.Unique(30*time.Minute)); err != nil {
		s.t.Fatal(err)
	}
	s.waitState(seqQueue, "r1", asynq.TaskStateRetry)
	s.put("r2", "")
	s.waitState(seqQueue, "r2", asynq.TaskStateRetry)
}

func (s *goSequence) archive() {
	s.serve(nil, func(_ context.Context, id string, _ *asynq.Task) error {
		if id == "a2" {
			return archivedAs("bad")
		}
		return errors.New("boom")
	})
	s.put("a1", "a", asynq.MaxRetry(0), asynq.Unique(30*time.Minute))
	s.waitState(seqQueue, "a1", asynq.TaskStateArchived)
	s.put("a2", "")
	s.waitState(seqQueue, "a2", asynq.TaskStateArchived)
}

func (s *goSequence) pause() {
	if err := s.inspector.PauseQueue(seqQueue); err != nil {
		s.t.Error(err)
	}
}

func (s *goSequence) forwardScheduled() {
	s.pause()
	s.put("f1", "f", asynq.ProcessIn(time.Second))
	s.serve(nil, succeed)
	s.waitState(seqQueue, "f1", asynq.TaskStatePending)
}

func (s *goSequence) forwardRetry() {
	s.put("f2", "f")
	atOnce := func(c *asynq.Config) {
		c.RetryDelayFunc = func(int, error, *asynq.Task) time.Duration { return 0 }
	}
	s.serve(atOnce, func(context.Context, string, *asynq.Task) error {
		s.pause() // So that the server forwards the task and leaves it.
		return errors.New("again")
	})
	s.eventually("f2 has been forwarded", func() bool {
		info := s.info(seqQueue, "f2")
		return info.State == asynq.TaskStatePending && info.Retried == 1
	})
}

func (s *goSequence) requeue() {
	s.put("q1", "")
	s.put("q2", "")
	s.serve(nil, hang)
	s.waitState(seqQueue, "q1", asynq.TaskStateActive)
	s.server.Shutdown()
	s.waitState(seqQueue, "q1", asynq.TaskStatePending)
}

func (s *goSequence) active() {
	s.put("x1", "x", asynq.Unique(30*time.Minute))
	s.serve(nil, hang)
	s.waitState(seqQueue, "x1", asynq.TaskStateActive)
}

func (s *goSequence) aggregate() {
	s.pause()
	for _, n := range []string{"1", "2", "3"} {
		s.put("g"+n, n, asynq.Group("g"))
	}
	s.serve(func(c *asynq.Config) {
		c.GroupMaxSize = 3
		c.GroupGracePeriod = time.Second // Also how often the server looks.
		c.GroupAggregator = asynq.GroupAggregatorFunc(joinPayloads)
	}, succeed)
	s.eventually("the group is one task", func() bool {
		_, err := s.inspector.GetTaskInfo(seqQueue, "agg")
		return err == nil && !s.exists(taskKey(seqQueue, "g1")) && !s.exists(queueKey(seqQueue, "aggregation_sets"))
	})
}

func joinPayloads(_ string, tasks []*asynq.Task) *asynq.Task {
	var joined []byte
	for i, task := range tasks {
		if i > 0 {
			joined = append(joined, ',')
		}
		joined = append(joined, task.Payload()...)
	}
	return asynq.NewTask("batch", joined, asynq.TaskID("agg"))
}

func (s *goSequence) janitor() {
	s.put("j1", "", asynq.Retention(time.Second))
	s.serve(func(c *asynq.Config) { c.JanitorInterval = time.Second }, succeed)
	s.waitGone(seqQueue, "j1")
}

func (s *goSequence) inspect() {
	later := asynq.ProcessIn(time.Hour)
	s.put("i1", "", later)
	s.put("i2", "")
	s.put("i3", "i", asynq.Unique(30*time.Minute), later)
	s.put("i4", "")
	s.put("i5", "", asynq.Group("g"))
	s.put("i6", "", asynq.Group("g2"))
	s.put("i7", "old", later)
	for _, err := range []error{
		s.inspector.RunTask(seqQueue, "i1"),
		s.inspector.ArchiveTask(seqQueue, "i2"),
		s.inspector.DeleteTask(seqQueue, "i3"),
		s.inspector.ArchiveTask(seqQueue, "i4"),
		s.inspector.RunTask(seqQueue, "i4"),
		s.inspector.RunTask(seqQueue, "i5"),
		s.inspector.ArchiveTask(seqQueue, "i6"),
		s.inspector.UpdateTaskPayload(seqQueue, "i7", []byte("new")),
	} {
		if err != nil {
			s.t.Fatal(err)
		}
	}
	s.pause()
}
