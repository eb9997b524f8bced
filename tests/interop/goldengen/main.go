// Goldengen writes the test vectors in tests/golden: bytes produced by the
// real Go asynq, and what they mean.
//
//	go run ./goldengen ../golden
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"queue.test/interop/internal/redistest"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: goldengen FOLDER")
		os.Exit(2)
	}
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "goldengen:", err)
		os.Exit(1)
	}
}

func run(folder string) error {
	files := []struct {
		name    string
		produce func(*recorder) error
	}{
		{"task_messages.json", recordTaskMessages},
		{"servers.json", recordServers},
		{"schedulers.json", recordSchedulers},
	}
	for _, file := range files {
		vectors, err := record(file.produce)
		if err != nil {
			return fmt.Errorf("%s: %w", file.name, err)
		}
		if err := write(filepath.Join(folder, file.name), vectors); err != nil {
			return err
		}
		fmt.Printf("%-20s %d vectors\n", file.name, len(vectors))
	}
	durations := goDurations()
	fmt.Printf("%-20s %d texts, %d inputs\n", "go_durations.json", len(durations.Format), len(durations.Parse))
	return write(filepath.Join(folder, "go_durations.json"), durations)
}

// record runs one producer against a Redis of its own.
func record(produce func(*recorder) error) ([]vector, error) {
	server, err := redistest.Start()
	if err != nil {
		return nil, err
	}
	defer server.Stop()
	r := newRecorder(server)
	defer r.close()
	if err := produce(r); err != nil {
		return nil, err
	}
	return r.vectors, nil
}

func recordTaskMessages(r *recorder) error {
	if err := r.recordEnqueued(enqueuedCases()); err != nil {
		return err
	}
	if err := r.recordEnqueued(numberCases()); err != nil {
		return err
	}
	return r.recordLifecycle()
}

// write indents, so that a change shows as a small difference.
func write(path string, value any) error {
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	if err := encoder.Encode(value); err != nil {
		return err
	}
	return os.WriteFile(path, out.Bytes(), 0o644)
}
