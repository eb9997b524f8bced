// Package child starts helper processes which do not outlive their parent.
package child

import "os/exec"

// Command is exec.Command with the process tied to its parent where the
// system can do that, so that a test which is killed leaves nothing behind.
func Command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(name, args...)
	tie(cmd)
	return cmd
}
