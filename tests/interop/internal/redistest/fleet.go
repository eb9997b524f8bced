package redistest

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"queue.test/interop/internal/child"
)

// Fleet is several redis-servers on the loopback interface.
type Fleet struct {
	// Addrs are the addresses, in the order of their start.
	Addrs []string

	dir  string
	cmds []*exec.Cmd
}

// Stop ends all servers and removes their folder.
func (f *Fleet) Stop() {
	for _, cmd := range f.cmds {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}
	os.RemoveAll(f.dir)
}

// KillMaster ends the first server as a power failure does, once its two
// replicas have all that it has.
func (f *Fleet) KillMaster() error {
	replicas, err := do(f.Addrs[0], "WAIT", 2, 10000).Int()
	if err != nil || replicas != 2 {
		return fmt.Errorf("%d replicas are in step: %w", replicas, err)
	}
	return f.cmds[0].Process.Kill()
}

func newFleet() (*Fleet, error) {
	dir, err := os.MkdirTemp("", "interop-")
	return &Fleet{dir: dir}, err
}

// add starts a server with these lines of configuration, and waits until it answers.
func (f *Fleet) add(args []string, lines ...string) error {
	for try := 0; ; try++ {
		port, err := freePort()
		if err != nil {
			return err
		}
		dir := filepath.Join(f.dir, fmt.Sprint(port))
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
		file := filepath.Join(dir, "redis.conf")
		all := append([]string{fmt.Sprintf("port %d", port), "bind 127.0.0.1", "dir " + dir}, lines...)
		if err := os.WriteFile(file, []byte(strings.Join(all, "\n")+"\n"), 0o600); err != nil {
			return err
		}
		cmd := child.Command("redis-server", append([]string{file}, args...)...)
		if err := cmd.Start(); err != nil {
			return err
		}
		addr := fmt.Sprintf("127.0.0.1:%d", port)
		err = until(10*time.Second, "the server on "+addr+" answers", func() bool {
			return do(addr, "PING").Err() == nil
		})
		if err == nil {
			f.Addrs, f.cmds = append(f.Addrs, addr), append(f.cmds, cmd)
			return nil
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		// Somebody else may have been faster with the port.
		if try == 2 {
			return err
		}
	}
}

func do(addr string, args ...any) *redis.Cmd {
	client := redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1})
	defer client.Close()
	return client.Do(context.Background(), args...)
}

func until(limit time.Duration, what string, condition func() bool) error {
	for deadline := time.Now().Add(limit); !condition(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			return fmt.Errorf("gave up waiting until %s", what)
		}
	}
	return nil
}

// freePort finds a port whose cluster bus, 10000 above, is free too.
func freePort() (int, error) {
	for {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return 0, err
		}
		port := listener.Addr().(*net.TCPAddr).Port
		listener.Close()
		if port < 55000 {
			return port, nil
		}
	}
}

// start runs a fleet with the servers that add gives it.
func start(add func(*Fleet) error) (*Fleet, error) {
	fleet, err := newFleet()
	if err != nil {
		return nil, err
	}
	if err := add(fleet); err != nil {
		fleet.Stop()
		return nil, err
	}
	return fleet, nil
}

// StartCluster runs a cluster of three masters with a replica each.
func StartCluster() (*Fleet, error) {
	return start((*Fleet).cluster)
}

func (f *Fleet) cluster() error {
	for range 6 {
		if err := f.add(nil, `save ""`, "cluster-enabled yes", "cluster-node-timeout 2000"); err != nil {
			return err
		}
	}
	create := append([]string{"--cluster", "create"}, f.Addrs...)
	create = append(create, "--cluster-replicas", "1", "--cluster-yes")
	if out, err := child.Command("redis-cli", create...).CombinedOutput(); err != nil {
		return fmt.Errorf("redis-cli %v: %w\n%s", create, err, out)
	}
	return until(30*time.Second, "the cluster is well", func() bool {
		for _, addr := range f.Addrs {
			info, err := do(addr, "CLUSTER", "INFO").Text()
			if err != nil || !strings.Contains(info, "cluster_state:ok") {
				return false
			}
		}
		return true
	})
}

// StartSentinel runs a master with two replicas, and then three Sentinels
// that call it mymaster: the last three addresses.
func StartSentinel() (*Fleet, error) {
	return start((*Fleet).sentinel)
}

func (f *Fleet) sentinel() error {
	lines := []string{`save ""`, "repl-diskless-sync-delay 0"}
	if err := f.add(nil, lines...); err != nil {
		return err
	}
	_, port, _ := net.SplitHostPort(f.Addrs[0])
	for range 2 {
		if err := f.add(nil, append(lines, "replicaof 127.0.0.1 "+port)...); err != nil {
			return err
		}
	}
	for range 3 {
		err := f.add([]string{"--sentinel"}, "sentinel monitor mymaster 127.0.0.1 "+port+" 2",
			"sentinel down-after-milliseconds mymaster 3000", "sentinel failover-timeout mymaster 6000")
		if err != nil {
			return err
		}
	}
	return until(30*time.Second, "the Sentinels know the replicas and each other", func() bool {
		for _, addr := range f.Addrs[3:] {
			master, err := do(addr, "SENTINEL", "MASTER", "mymaster").Result()
			text := fmt.Sprint(master)
			if err != nil || !strings.Contains(text, "num-slaves:2") || !strings.Contains(text, "num-other-sentinels:2") {
				return false
			}
		}
		info, err := do(f.Addrs[0], "INFO", "replication").Text()
		return err == nil && strings.Count(info, "state=online") == 2
	})
}
