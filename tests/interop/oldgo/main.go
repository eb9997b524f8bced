// oldgo is what runs beside this project where Go was not updated: asynqmon
// v0.7.2, and a server, both of asynq v0.24.1. They are a module of their own
// because the tests are built with the newest asynq.
//
//	oldgo asynqmon REDIS-SOCKET LISTEN-SOCKET PROMETHEUS-URL
//	oldgo server REDIS-SOCKET
package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/hibiken/asynq"
	"github.com/hibiken/asynqmon"
)

func main() {
	var err error
	switch args := os.Args[1:]; {
	case len(args) == 4 && args[0] == "asynqmon":
		err = monitor(args[1], args[2], args[3])
	case len(args) == 2 && args[0] == "server":
		err = serve(args[1])
	default:
		err = fmt.Errorf("wrong arguments: %q", args)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// monitor serves asynqmon's pages and its API.
func monitor(redis, listen, prometheus string) error {
	handler := asynqmon.New(asynqmon.Options{
		RedisConnOpt:      asynq.RedisClientOpt{Network: "unix", Addr: redis},
		PrometheusAddress: prometheus,
	})
	defer handler.Close()
	listener, err := net.Listen("unix", listen)
	if err != nil {
		return err
	}
	return http.Serve(listener, handler)
}

// serve fails tasks of the type fail, and completes the others.
func serve(redis string) error {
	server := asynq.NewServer(asynq.RedisClientOpt{Network: "unix", Addr: redis}, asynq.Config{
		LogLevel:       asynq.FatalLevel,
		RetryDelayFunc: func(int, error, *asynq.Task) time.Duration { return time.Hour },
	})
	return server.Run(asynq.HandlerFunc(func(_ context.Context, task *asynq.Task) error {
		if task.Type() == "fail" {
			return errors.New("it fails")
		}
		return nil
	}))
}
