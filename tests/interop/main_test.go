package interop

import (
	"flag"
	"os"
	"testing"
)

func TestMain(m *testing.M) {
	if socket := os.Getenv(goServerSocket); socket != "" {
		runGoServerProcess(socket)
		return
	}
	flag.Parse()
	chosen := false
	flag.Visit(func(f *flag.Flag) { chosen = chosen || f.Name == "test.parallel" })
	if !chosen {
		// These tests wait for other processes more than they compute.
		_ = flag.Set("test.parallel", "6")
	}
	code := m.Run()
	_ = os.Remove(oldGoPath)
	os.Exit(code)
}
