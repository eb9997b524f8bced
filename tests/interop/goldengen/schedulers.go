package main

import (
	"fmt"
	"strconv"
	"time"

	"github.com/hibiken/asynq"

	"queue.test/interop/internal/wire"
)

// goZeroTime is how Go writes a time that never was.
var goZeroTime = wire.Timestamp{Seconds: -62_135_596_800}

// recordSchedulers runs a Go scheduler until its every-second entry ran.
func recordSchedulers(r *recorder) error {
	scheduler := asynq.NewScheduler(r.opt, &asynq.SchedulerOpts{
		// Sent to Redis as whole seconds, twice.
		HeartbeatInterval: time.Second,
		LogLevel:          asynq.FatalLevel,
	})
	entries := []struct {
		name, spec string
		task       *asynq.Task
		opts       []asynq.Option
		run        bool
		options    []string
	}{
		{
			name: "never_run", spec: "0 0 1 1 *", task: asynq.NewTask("yearly", nil),
			options: []string{},
		},
		{
			// There is no such day, so the next time is also never.
			name: "never_fires", spec: "0 0 30 2 *", task: asynq.NewTask("never", nil),
			options: []string{},
		},
		{
			name: "never_run_every_option", spec: "CRON_TZ=Europe/Berlin 30 4 29 2 *",
			task: asynq.NewTask("cron:отчёт", []byte(`{"a":"б"}`)),
			opts: []asynq.Option{
				asynq.MaxRetry(5), asynq.Queue("low"), asynq.TaskID("x"), asynq.Timeout(20 * time.Minute),
				asynq.Deadline(time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)), asynq.Unique(time.Hour),
				asynq.ProcessAt(time.Date(2031, 11, 12, 13, 14, 15, 0, time.UTC)),
				asynq.ProcessIn(1500 * time.Millisecond), asynq.Retention(24 * time.Hour),
				asynq.Group("g \"quoted\" (1)\n"),
			},
			options: []string{
				`MaxRetry(5)`, `Queue("low")`, `TaskID("x")`, `Timeout(20m0s)`,
				`Deadline(Wed Jan  2 03:04:05 UTC 2030)`, `Unique(1h0m0s)`,
				`ProcessAt(Wed Nov 12 13:14:15 UTC 2031)`, `ProcessIn(1.5s)`, `Retention(24h0m0s)`,
				`Group("g \"quoted\" (1)\n")`,
			},
		},
		{
			name: "run", spec: "@every 1s", task: asynq.NewTask("tick", []byte{0, 255}),
			opts: []asynq.Option{asynq.Queue("ticks")}, run: true,
			options: []string{`Queue("ticks")`},
		},
	}
	names := map[string]int{}
	ranID := ""
	for i, e := range entries {
		id, err := scheduler.Register(e.spec, e.task, e.opts...)
		if err != nil {
			return err
		}
		names[id] = i
		if e.run {
			ranID = id
		}
	}
	if err := scheduler.Start(); err != nil {
		return err
	}
	defer scheduler.Shutdown()

	var items []string
	err := wait("the scheduler has written an entry that ran", func() (bool, error) {
		keys, err := r.rdb.Keys(ctx, "asynq:schedulers:*").Result()
		if err != nil || len(keys) != 1 {
			return false, err
		}
		if items, err = r.rdb.LRange(ctx, keys[0], 0, -1).Result(); err != nil {
			return false, err
		}
		for _, item := range items {
			fields, err := wire.SchedulerEntry.Decode([]byte(item))
			if err != nil {
				return false, err
			}
			if fields["id"] == ranID && fields["prev_enqueue_time"] != goZeroTime {
				return true, nil
			}
		}
		return false, nil
	})
	if err != nil {
		return err
	}
	for _, item := range items {
		fields, err := wire.SchedulerEntry.Decode([]byte(item))
		if err != nil {
			return err
		}
		e := entries[names[fields["id"].(string)]]
		want := wire.Fields{
			"spec": e.spec, "task_type": e.task.Type(), "task_payload": wire.Hex(e.task.Payload()),
			"enqueue_options": e.options,
		}
		if !e.run {
			want["prev_enqueue_time"] = goZeroTime
		}
		if _, err := r.add("entry/"+e.name, wire.SchedulerEntry, []byte(item), want); err != nil {
			return err
		}
	}
	return r.recordEvents(ranID)
}

// recordEvents records the history of one entry. Each event names a task
// that is in the queue.
func (r *recorder) recordEvents(entryID string) error {
	history := "asynq:scheduler_history:" + entryID
	err := wait("two events are there", func() (bool, error) {
		n, err := r.rdb.ZCard(ctx, history).Result()
		return n >= 2, err
	})
	if err != nil {
		return err
	}
	events, err := r.rdb.ZRangeWithScores(ctx, history, 0, 1).Result()
	if err != nil {
		return err
	}
	for i, event := range events {
		v, err := r.add("event/"+strconv.Itoa(i+1), wire.SchedulerEnqueueEvent, []byte(event.Member.(string)), nil)
		if err != nil {
			return err
		}
		at := v.Fields["enqueue_time"].(wire.Timestamp)
		if at.Seconds != int64(event.Score) {
			return fmt.Errorf("event at %d has score %v", at.Seconds, event.Score)
		}
		score := at.Seconds
		v.Container = &container{Key: history, Score: &score}
		if _, err := r.inspector.GetTaskInfo("ticks", v.Fields["task_id"].(string)); err != nil {
			return fmt.Errorf("the task of an event: %w", err)
		}
	}
	return nil
}
