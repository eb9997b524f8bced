// A Go program that works the members of a workflow of ours, with nothing but
// asynq. It knows of the workflow what a header tells it: where its parents
// have left their results.
//
//	go run . localhost:6379
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"strings"

	"github.com/hibiken/asynq"
)

// Where the result of a parent is found.
type place struct {
	Queue string
	ID    string
	Batch string
}

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: go_members HOST:PORT or the path of a socket")
	}
	redis := asynq.RedisClientOpt{Addr: os.Args[1]}
	if strings.HasPrefix(os.Args[1], "/") {
		redis.Network = "unix"
	}
	inspector := asynq.NewInspector(redis)

	fetch := func(_ context.Context, task *asynq.Task) error {
		fmt.Printf("Go fetches %s\n", task.Payload())
		_, err := fmt.Fprintf(task.ResultWriter(), "picture of %s", task.Payload())
		return err
	}
	resize := func(_ context.Context, task *asynq.Task) error {
		var parents map[string]place
		if err := json.Unmarshal([]byte(task.Headers()["x-flow-input"]), &parents); err != nil {
			return err
		}
		info, err := inspector.GetTaskInfo(parents["fetch"].Queue, parents["fetch"].ID)
		if err != nil {
			return err
		}
		fmt.Printf("Go resizes the %s to %s\n", info.Result, task.Payload())
		return nil
	}
	mux := asynq.NewServeMux()
	mux.HandleFunc("picture:fetch", fetch)
	mux.HandleFunc("picture:resize", resize)
	server := asynq.NewServer(redis, asynq.Config{
		Queues:   map[string]int{"pictures": 1},
		LogLevel: asynq.WarnLevel,
	})
	if err := server.Run(mux); err != nil {
		log.Fatal(err)
	}
}
