package interop

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/hibiken/asynq"

	"queue.test/interop/internal/child"
)

// goRun is what a Go handler saw of a task.
type goRun struct {
	id, queue, typ    string
	payload           []byte
	headers           map[string]string
	retried, maxRetry int
	deadline          time.Time
}

// goServer is a Go server in this process, with the handlers of PEER.md.
type goServer struct {
	*asynq.Server
	f *fixture

	mu   sync.Mutex
	runs []goRun
}

func goConfig() asynq.Config {
	return asynq.Config{
		Concurrency:              5,
		LogLevel:                 asynq.FatalLevel,
		TaskCheckInterval:        10 * time.Millisecond,
		DelayedTaskCheckInterval: 100 * time.Millisecond,
		ShutdownTimeout:          100 * time.Millisecond,
		IsFailure:                func(err error) bool { return !errors.Is(err, errWithoutPenalty) },
	}
}

var errWithoutPenalty = errors.New("soft")

// startGoServer starts a server for the given queues.
func (f *fixture) startGoServer(change func(*asynq.Config), queues ...string) *goServer {
	f.t.Helper()
	config := goConfig()
	config.Queues = map[string]int{}
	for _, queue := range queues {
		config.Queues[queue] = 1
	}
	if change != nil {
		change(&config)
	}
	s := &goServer{Server: asynq.NewServer(f.opt, config), f: f}
	if err := s.Start(asynq.HandlerFunc(s.handle)); err != nil {
		f.t.Fatalf("start a Go server: %v", err)
	}
	f.t.Cleanup(s.Shutdown)
	return s
}

func (s *goServer) handle(ctx context.Context, task *asynq.Task) error {
	run := goRun{typ: task.Type(), payload: task.Payload(), headers: task.Headers()}
	run.id, _ = asynq.GetTaskID(ctx)
	run.queue, _ = asynq.GetQueueName(ctx)
	run.retried, _ = asynq.GetRetryCount(ctx)
	run.maxRetry, _ = asynq.GetMaxRetry(ctx)
	run.deadline, _ = ctx.Deadline()
	s.mu.Lock()
	s.runs = append(s.runs, run)
	s.mu.Unlock()

	switch task.Type() {
	case "result":
		_, err := task.ResultWriter().Write(task.Payload())
		return err
	case "fail":
		return errors.New(string(task.Payload()))
	case "skip":
		return fmt.Errorf("%s: %w", task.Payload(), asynq.SkipRetry)
	case "sleep":
		ms, err := strconv.Atoi(string(task.Payload()))
		time.Sleep(time.Duration(ms) * time.Millisecond)
		return err
	case "hang":
		<-ctx.Done()
		return ctx.Err()
	}
	return nil
}

// ids answers the ids of all runs, in order.
func (s *goServer) ids() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var ids []string
	for _, run := range s.runs {
		ids = append(ids, run.id)
	}
	return ids
}

func (s *goServer) waitRun(id string) goRun {
	s.f.t.Helper()
	var found goRun
	s.f.eventually("Go runs task "+id, func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		at := slices.IndexFunc(s.runs, func(run goRun) bool { return run.id == id })
		if at >= 0 {
			found = s.runs[at]
		}
		return at >= 0
	})
	return found
}

// goServerSocket makes this test binary a Go server instead, so that a test
// can kill one.
const goServerSocket = "INTEROP_GO_SERVER_SOCKET"

func runGoServerProcess(socket string) {
	config := goConfig()
	config.Concurrency = 2
	config.GroupGracePeriod = time.Second
	config.GroupAggregator = asynq.GroupAggregatorFunc(func(string, []*asynq.Task) *asynq.Task { select {} })
	server := asynq.NewServer(asynq.RedisClientOpt{Network: "unix", Addr: socket}, config)
	stuck := func(context.Context, *asynq.Task) error { select {} }
	if err := server.Run(asynq.HandlerFunc(stuck)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// startGoProcess starts a Go server on the default queue that holds on to
// each task and each group it takes. The answered function kills it.
func (f *fixture) startGoProcess() (kill func()) {
	f.t.Helper()
	self, err := os.Executable()
	if err != nil {
		f.t.Fatal(err)
	}
	cmd := child.Command(self)
	cmd.Env = append(os.Environ(), goServerSocket+"="+f.socket)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		f.t.Fatalf("start a Go server process: %v", err)
	}
	kill = sync.OnceFunc(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	f.t.Cleanup(kill)
	return kill
}
