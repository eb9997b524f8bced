package interop

import (
	"context"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/hibiken/asynq/x/rate"
)

// rustSemaphore makes one call and answers what Rust says.
func (f *fixture) rustSemaphore(tokens int, call ...string) bool {
	f.t.Helper()
	args := append([]string{"semaphore", "--redis", f.url, "--scope", "mail", "--tokens", strconv.Itoa(tokens)}, call...)
	out, refused := run(f.t, interopPeer(f.t), args...)
	if refused != nil {
		f.t.Fatalf("interop-peer %v: exit %d: %s", args, refused.code, refused.stderr)
	}
	answer, err := strconv.ParseBool(strings.TrimSpace(out))
	if err != nil {
		f.t.Fatalf("interop-peer %v prints %q", args, out)
	}
	return answer
}

// holder is a Go server whose handlers take a token and keep it until told.
type holder struct {
	f        *fixture
	acquired map[string]chan bool
	let      chan struct{}
	released map[string]chan error
}

func (f *fixture) startGoHolder(tokens int, ids ...string) *holder {
	f.t.Helper()
	sema := rate.NewSemaphore(f.opt, "mail", tokens)
	f.t.Cleanup(func() { sema.Close() })
	h := &holder{f: f, acquired: map[string]chan bool{}, let: make(chan struct{}, 10), released: map[string]chan error{}}
	for _, id := range ids {
		h.acquired[id], h.released[id] = make(chan bool, 1), make(chan error, 1)
	}
	config := goConfig()
	server := asynq.NewServer(f.opt, config)
	err := server.Start(asynq.HandlerFunc(func(ctx context.Context, task *asynq.Task) error {
		id, _ := asynq.GetTaskID(ctx)
		ok, err := sema.Acquire(ctx)
		if err != nil {
			f.t.Errorf("Go acquires for %s: %v", id, err)
		}
		h.acquired[id] <- ok
		if ok {
			<-h.let
			h.released[id] <- sema.Release(ctx)
		}
		return nil
	}))
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(server.Shutdown)
	return h
}

// take runs a task of Go that wants a token.
func (h *holder) take(id string) bool {
	h.f.t.Helper()
	h.f.enqueueID("limited", id, asynq.Timeout(time.Hour))
	select {
	case ok := <-h.acquired[id]:
		return ok
	case <-time.After(patience):
		h.f.t.Fatalf("Go did not run %s", id)
		return false
	}
}

// giveBack lets the only holder go.
func (h *holder) giveBack(id string) error {
	h.f.t.Helper()
	h.let <- struct{}{}
	select {
	case err := <-h.released[id]:
		return err
	case <-time.After(patience):
		h.f.t.Fatalf("Go did not give back the token of %s", id)
		return nil
	}
}

func TestRustIsRefusedATokenThatGoHolds(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	h := f.startGoHolder(1, "go")
	if !h.take("go") {
		t.Fatal("Go gets no token")
	}
	if f.rustSemaphore(1, "acquire", "rust", "60") {
		t.Error("Rust gets a token that Go holds")
	}
	if err := h.giveBack("go"); err != nil {
		t.Error(err)
	}
	if !f.rustSemaphore(1, "acquire", "rust", "60") {
		t.Error("Rust gets no token although Go gave it back")
	}
	score := f.rdb.ZScore(ctx, "asynq:sema:mail", "rust").Val()
	if left := int64(score) - time.Now().Unix(); left < 45 || left > 61 {
		t.Errorf("the token of Rust has %d s left", left)
	}
}

func TestGoIsRefusedATokenThatRustHolds(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	if !f.rustSemaphore(2, "acquire", "rust", "60") || !f.rustSemaphore(2, "acquire", "go", "60") {
		t.Fatal("Rust gets no token")
	}
	h := f.startGoHolder(2, "refused", "after")
	if h.take("refused") {
		t.Error("Go gets a token that Rust holds")
	}
	if !f.rustSemaphore(2, "release", "rust") || f.rustSemaphore(2, "release", "rust") {
		t.Error("Rust does not give its token back, or does so twice")
	}
	if !h.take("after") {
		t.Error("Go gets no token although Rust gave it back")
	}
	// What Rust has given back by name, Go finds gone.
	if !f.rustSemaphore(2, "release", "after") {
		t.Error("Rust cannot release what Go holds")
	}
	if err := h.giveBack("after"); err == nil {
		t.Error("Go gives back a token that is gone")
	}
}

func TestATokenWhoseHolderDiedIsGoneForBothSides(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	if !f.rustSemaphore(1, "acquire", "dead", "1") {
		t.Fatal("Rust gets no token")
	}
	h := f.startGoHolder(1, "next")
	f.eventually("the deadline has passed", func() bool {
		return float64(time.Now().Unix()) > math.Ceil(f.rdb.ZScore(ctx, "asynq:sema:mail", "dead").Val())
	})
	if !h.take("next") {
		t.Error("Go gets no token although its holder is dead")
	}
	if err := h.giveBack("next"); err != nil {
		t.Error(err)
	}
}
