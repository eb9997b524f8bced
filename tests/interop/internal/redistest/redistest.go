// Package redistest runs private Redis servers on Unix sockets.
package redistest

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/hibiken/asynq"
	"github.com/redis/go-redis/v9"

	"queue.test/interop/internal/child"
)

// Server is one running redis-server. It listens on no port and keeps its
// data in memory only.
type Server struct {
	// Socket is the path of the Unix socket.
	Socket string

	dir    string
	cmd    *exec.Cmd
	output bytes.Buffer
}

// Start runs a server and returns once it answers.
func Start() (*Server, error) {
	// Short on purpose: a socket path may not exceed about 100 bytes.
	dir, err := os.MkdirTemp("", "interop-")
	if err != nil {
		return nil, err
	}
	server := &Server{Socket: filepath.Join(dir, "redis.sock"), dir: dir}
	server.cmd = child.Command("redis-server",
		"--port", "0",
		"--unixsocket", server.Socket,
		"--dir", dir,
		"--save", "",
		"--appendonly", "no")
	server.cmd.Stdout = &server.output
	server.cmd.Stderr = &server.output
	if err := server.cmd.Start(); err != nil {
		os.RemoveAll(dir)
		return nil, fmt.Errorf("start redis-server: %w", err)
	}
	if err := server.waitUntilUp(); err != nil {
		server.Stop()
		return nil, fmt.Errorf("%w\n%s", err, server.output.String())
	}
	return server, nil
}

func (s *Server) waitUntilUp() error {
	client := redis.NewClient(&redis.Options{Network: "unix", Addr: s.Socket, MaxRetries: -1})
	defer client.Close()
	deadline := time.Now().Add(10 * time.Second)
	for {
		// Asking before the socket exists would make the client log.
		_, err := os.Stat(s.Socket)
		if err == nil {
			err = client.Ping(context.Background()).Err()
		}
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("redis-server does not answer: %w", err)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// Stop ends the server and removes its folder.
func (s *Server) Stop() {
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait()
	os.RemoveAll(s.dir)
}

// Client opens a plain connection, for looking at raw keys.
func (s *Server) Client() *redis.Client {
	return redis.NewClient(&redis.Options{Network: "unix", Addr: s.Socket})
}

// Asynq tells asynq how to connect.
func (s *Server) Asynq() asynq.RedisClientOpt {
	return asynq.RedisClientOpt{Network: "unix", Addr: s.Socket}
}

// URL tells the Rust side how to connect.
func (s *Server) URL() string {
	return "redis+unix://" + s.Socket
}
