// Command soak works with services that restart again and again, by the public surface of package leman: see "Restarts"
// in tests/conformance/cases/README.md. It is given the path of a file, and told on its standard input what to do.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"time"

	"leman.dev/go/leman"
)

// told is the file.
type told struct {
	Endpoints []string `json:"endpoints"`
	Token     string   `json:"token"`
	Database  string   `json:"database"`
	Rows      int64    `json:"rows"`
}

func main() {
	if err := do(os.Args[1]); err != nil {
		say(map[string]string{"failed": err.Error()})
		os.Exit(1)
	}
}

// say writes a line.
func say(what any) {
	line, err := json.Marshal(what)
	if err != nil {
		panic(err)
	}
	fmt.Println(string(line))
}

func do(path string) error {
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var given told
	if err := json.Unmarshal(content, &given); err != nil {
		return err
	}
	before := runtime.NumGoroutine()
	ctx := context.Background()
	var clients []*leman.Client
	for _, endpoint := range given.Endpoints {
		client, err := leman.Connect(ctx, endpoint, leman.WithToken(given.Token))
		if err != nil {
			return err
		}
		clients = append(clients, client)
	}
	if err := obey(ctx, &soak{told: given, clients: clients}); err != nil {
		return err
	}
	for _, client := range clients {
		if err := client.Close(); err != nil {
			return err
		}
	}
	say(map[string]map[string]int{"closed": {"goroutines": settled(before)}})
	return nil
}

// settled gives how many goroutines there are, once they are no more than before, or after a while.
func settled(before int) int {
	for range 1000 {
		if runtime.NumGoroutine() <= before {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	return runtime.NumGoroutine() - before
}

// obey does what the lines of standard input say, until it ends.
func obey(ctx context.Context, s *soak) error {
	var stop, ended chan struct{}
	rest := func() {
		if stop != nil {
			close(stop)
			<-ended
			stop = nil
		}
	}
	defer rest()
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		switch lines.Text() {
		case "work":
			stop, ended = make(chan struct{}), make(chan struct{})
			go s.work(ctx, stop, ended)
		case "rest":
			rest()
			if err := s.call(ctx); err != nil {
				return err
			}
			say(map[string]map[string]int{"resting": {"goroutines": runtime.NumGoroutine()}})
		default:
			return fmt.Errorf("it is not known what %q means", lines.Text())
		}
	}
	return lines.Err()
}

// work does round after round, until it is told to stop.
func (s *soak) work(ctx context.Context, stop <-chan struct{}, ended chan<- struct{}) {
	defer close(ended)
	for {
		done, err := s.round(ctx)
		if err != nil {
			say(map[string]string{"failed": fmt.Sprintf("round %d: %v", s.rounds, err)})
			os.Exit(1)
		}
		say(map[string]any{"round": done})
		s.rounds++
		select {
		case <-stop:
			return
		default:
		}
	}
}
