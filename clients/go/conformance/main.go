// Command conformance does the cases of tests/conformance/cases with the public surface of package leman: see the page
// there. It is given the path of a run's file.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"runtime/debug"
	"time"

	"leman.dev/go/leman"
)

// run is the file of a run.
type run struct {
	Control string   `json:"control"`
	Cases   []string `json:"cases"`
}

// step is what is to be done next.
type step struct {
	Do         string          `json:"do"`
	With       json.RawMessage `json:"with"`
	Database   string          `json:"database"`
	Connection connection      `json:"connection"`
	Timeout    float64         `json:"timeout"`
}

// answer is a step, or how the case ended.
type answer struct {
	Step    *step  `json:"step"`
	Outcome string `json:"outcome"`
	Detail  string `json:"detail"`
}

// result is what became of a step.
type result struct {
	Value any     `json:"value,omitempty"`
	Error *failed `json:"error,omitempty"`
	Crash string  `json:"crash,omitempty"`
}

// failed is an error of the client.
type failed struct {
	Code       string            `json:"code"`
	Reason     string            `json:"reason,omitempty"`
	Message    string            `json:"message"`
	Metadata   map[string]string `json:"metadata,omitempty"`
	Fields     []field           `json:"fields,omitempty"`
	RetryDelay float64           `json:"retry_delay,omitempty"`
	Job        string            `json:"job,omitempty"`
}

type field struct {
	Field       string `json:"field"`
	Description string `json:"description"`
}

func main() {
	if err := do(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// do does all cases of a run's file.
func do(path string) error {
	content, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var told run
	if err := json.Unmarshal(content, &told); err != nil {
		return err
	}
	for _, name := range told.Cases {
		ended, err := story(told.Control, name)
		if err != nil {
			return err
		}
		line, err := json.Marshal(map[string]string{"case": name, "outcome": ended.Outcome, "detail": ended.Detail})
		if err != nil {
			return err
		}
		fmt.Println(string(line))
	}
	return nil
}

// story does a case.
func story(control, name string) (*answer, error) {
	open := connections{}
	defer open.close()
	next, err := ask(control, map[string]any{"case": name})
	for err == nil && next.Step != nil {
		next, err = ask(control, map[string]any{"case": name, "result": attempt(next.Step, open)})
	}
	return next, err
}

// ask gets the next step, or the outcome.
func ask(control string, asked map[string]any) (*answer, error) {
	body, err := json.Marshal(asked)
	if err != nil {
		return nil, err
	}
	response, err := http.Post(control+"/next", "application/json", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	next := &answer{}
	return next, json.NewDecoder(response.Body).Decode(next)
}

// attempt does a step.
func attempt(asked *step, open connections) (told result) {
	defer func() {
		if crash := recover(); crash != nil {
			told = result{Crash: fmt.Sprintf("%v\n%s", crash, debug.Stack())}
		}
	}()
	ctx := context.Background()
	if asked.Timeout > 0 {
		limited, cancel := context.WithTimeout(ctx, time.Duration(asked.Timeout*float64(time.Second)))
		defer cancel()
		ctx = limited
	}
	client, err := open.client(asked.Connection)
	if err != nil {
		return explain(err)
	}
	does, known := operations[asked.Do]
	if !known {
		return result{Crash: "there is no operation " + asked.Do}
	}
	value, err := does(ctx, client.Database(asked.Database), asked.With)
	if err != nil {
		return explain(err)
	}
	return result{Value: value}
}

// explain tells an error of the client; another one is a crash.
func explain(err error) result {
	var from *leman.Error
	if !errors.As(err, &from) {
		return result{Crash: err.Error()}
	}
	told := &failed{
		Code: codeNames[from.Code], Reason: from.Reason, Message: from.Message, Metadata: from.Metadata,
		RetryDelay: from.RetryDelay.Seconds(), Job: from.JobID,
	}
	for _, violation := range from.Fields {
		told.Fields = append(told.Fields, field{violation.Field, violation.Description})
	}
	return result{Error: told}
}
