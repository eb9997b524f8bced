package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hibiken/asynq"
)

var errSoft = errors.New("not now")

// newServer is a Go server that looks for work often and says nothing.
func (r *recorder) newServer(config asynq.Config) *asynq.Server {
	config.LogLevel = asynq.FatalLevel
	config.TaskCheckInterval = 10 * time.Millisecond
	config.DelayedTaskCheckInterval = 100 * time.Millisecond
	config.IsFailure = func(err error) bool { return !errors.Is(err, errSoft) }
	config.RetryDelayFunc = func(n int, _ error, task *asynq.Task) time.Duration {
		if (task.Type() == "again" && n < 2) || task.Type() == "flaky" {
			return 0
		}
		return time.Hour
	}
	return asynq.NewServer(r.opt, config)
}

// handlers ends each task in the way its type says.
func handlers() *asynq.ServeMux {
	mux := asynq.NewServeMux()
	mux.HandleFunc("ok", func(context.Context, *asynq.Task) error { return nil })
	mux.HandleFunc("result", func(_ context.Context, task *asynq.Task) error {
		_, err := task.ResultWriter().Write(task.Payload())
		return err
	})
	fail := func(_ context.Context, task *asynq.Task) error { return errors.New(string(task.Payload())) }
	mux.HandleFunc("fail", fail)
	mux.HandleFunc("again", fail)
	mux.HandleFunc("flaky", func(ctx context.Context, task *asynq.Task) error {
		if retried, _ := asynq.GetRetryCount(ctx); retried == 0 {
			return errors.New("first time")
		}
		_, err := task.ResultWriter().Write([]byte("second time"))
		return err
	})
	mux.HandleFunc("soft", func(context.Context, *asynq.Task) error { return errSoft })
	mux.HandleFunc("skip", func(_ context.Context, task *asynq.Task) error {
		return fmt.Errorf("%s: %w", task.Payload(), asynq.SkipRetry)
	})
	mux.HandleFunc("hang", func(ctx context.Context, _ *asynq.Task) error {
		<-ctx.Done()
		return ctx.Err()
	})
	// Keeps its place over a shutdown, as it does not look at its context.
	mux.HandleFunc("stubborn", func(context.Context, *asynq.Task) error { select {} })
	return mux
}
