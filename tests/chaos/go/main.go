// A worker on Go asynq for queue-chaos: does what the name of a task says, as tests/chaos/src/work.rs does, and writes
// the same ledger.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/hibiken/asynq"
)

type name struct {
	plan   byte
	number int
	text   string
}

func parse(text string) (name, bool) {
	parts := strings.Split(text, "-")
	if len(parts) != 3 || parts[0] == "" {
		return name{}, false
	}
	number, err := strconv.Atoi(parts[2])
	return name{parts[0][0], number, text}, err == nil
}

func (n name) failures() int {
	switch n.plan {
	case 'f':
		return 1 + n.number%3
	case 'x':
		return 2
	case 'r':
		if n.number%7 == 0 {
			return 1
		}
	}
	return 0
}

func (n name) work() time.Duration {
	switch {
	case n.plan == 'r':
		return time.Duration(20+n.number*29%140) * time.Millisecond
	case n.plan == 's':
		return time.Duration(200+n.number*37%1800) * time.Millisecond
	case n.number%10 == 0:
		return time.Duration(n.number/10%20) * time.Millisecond
	}
	return 0
}

type host struct {
	ledger  *os.File
	process int
}

// One write, so that a process that is killed leaves whole lines.
func (h *host) note(step string, argument int, names ...string) {
	now := time.Now().UnixNano()
	var lines strings.Builder
	for _, name := range names {
		fmt.Fprintf(&lines, "%s %d %s %d\n", step, now, name, argument)
	}
	if _, err := h.ledger.WriteString(lines.String()); err != nil {
		fmt.Fprintln(os.Stderr, "the ledger cannot be written:", err)
		os.Exit(3)
	}
}

func (h *host) handle(ctx context.Context, task *asynq.Task) error {
	retried, _ := asynq.GetRetryCount(ctx)
	if task.Type() == "chaos:digest" {
		names := strings.Fields(string(task.Payload()))
		h.note("S", retried, names...)
		time.Sleep(20 * time.Millisecond)
		h.note("O", 0, names...)
		h.note("G", 1, "-")
		return nil
	}
	named, ok := parse(task.Headers()["chaos"])
	if !ok {
		return fmt.Errorf("a task without a name: %w", asynq.SkipRetry)
	}
	begun := time.Now().UnixNano()
	h.note("S", retried, named.text)
	time.Sleep(named.work())
	switch {
	case named.plan == 'c':
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	case named.plan == 'd':
		h.note("A", 0, named.text)
		return fmt.Errorf("meant to be archived: %w", asynq.SkipRetry)
	case retried < named.failures():
		h.note("F", 0, named.text)
		return errors.New("meant to fail")
	}
	if named.plan == 'k' {
		if _, err := fmt.Fprintf(task.ResultWriter(), "%d %d", h.process, begun); err != nil {
			h.note("F", 0, named.text)
			return err
		}
	}
	h.note("O", 0, named.text)
	return nil
}

func main() {
	redis := flag.String("redis", "", "host:port")
	path := flag.String("ledger", "", "file to append to")
	process := flag.Int("process", 0, "number of this process")
	concurrency := flag.Int("concurrency", 10, "concurrency of the server")
	flag.Parse()
	ledger, err := os.OpenFile(*path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	// Whoever started it is gone.
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(4)
	}()
	h := &host{ledger, *process}
	for {
		server := asynq.NewServer(asynq.RedisClientOpt{Addr: *redis}, asynq.Config{
			Concurrency:     *concurrency,
			Queues:          queues(),
			RetryDelayFunc:  func(int, error, *asynq.Task) time.Duration { return time.Second },
			ShutdownTimeout: 3 * time.Second,
			LogLevel:        asynq.WarnLevel,
		})
		// Redis may be away at this very moment.
		if err := server.Run(asynq.HandlerFunc(h.handle)); err == nil {
			return
		}
		time.Sleep(300 * time.Millisecond)
	}
}

// As QUEUES of tests/chaos/src/name.rs.
func queues() map[string]int {
	weights := make(map[string]int)
	for number := range 24 {
		weights[fmt.Sprintf("chaos-%d", number)] = 1
	}
	return weights
}
