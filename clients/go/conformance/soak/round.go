package main

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"leman.dev/go/leman"
	lemanv1 "leman.dev/go/leman/v1"
)

// soak is what a program knows of its work.
type soak struct {
	told
	clients []*leman.Client
	rounds  int
}

// seen is what a round saw.
type seen struct {
	Number int              `json:"number"`
	Jobs   []*watched       `json:"jobs"`
	Listed []string         `json:"listed"`
	Sums   map[string]int64 `json:"sums"`
}

// watched is a job, as it was watched to its end, and again from its beginning once that had come.
type watched struct {
	Name    string `json:"name"`
	Job     string `json:"job"`
	Again   string `json:"again,omitempty"`
	State   string `json:"state"`
	Attempt int32  `json:"attempt"`
	First   *watch `json:"first"`
	Second  *watch `json:"second"`
	handle  *leman.Job
}

// watch is what a watch told.
type watch struct {
	Sequences []int64 `json:"sequences"`
	Events    []int64 `json:"events"`
	Missing   bool    `json:"missing"`
	End       string  `json:"end"`
}

var schema = arrow.NewSchema([]arrow.Field{{Name: "id", Type: arrow.PrimitiveTypes.Int64, Nullable: true}}, nil)

// database is that of this round, over each service in turn.
func (s *soak) database() *leman.Database {
	return s.clients[s.rounds%len(s.clients)].Database(s.Database)
}

// call has each connection used.
func (s *soak) call(ctx context.Context) error {
	for _, client := range s.clients {
		if _, err := client.Info(ctx); err != nil {
			return err
		}
	}
	return nil
}

// round appends rows, has columns of them computed, by one job that is made in the usual way and by one that is asked for
// twice, cancels a third job, watches all three, lists them, and reads all rows.
func (s *soak) round(ctx context.Context) (*seen, error) {
	db := s.database()
	if err := s.appended(ctx, db.Table("lines")); err != nil {
		return nil, fmt.Errorf("append: %w", err)
	}
	round := leman.Labels(map[string]string{"round": fmt.Sprint(s.rounds)})
	jobs := []*watched{{Name: "usual"}, {Name: "twice"}, {Name: "cancelled"}}
	var err error
	if jobs[0].handle, err = db.Table("lines").Backfill(ctx, "a", round); err != nil {
		return nil, fmt.Errorf("backfill: %w", err)
	}
	for range 2 {
		twice := leman.WithRequestID(ctx, fmt.Sprintf("twice-%d", s.rounds))
		jobs[1].Again = jobs[1].id()
		if jobs[1].handle, err = db.Table("lines").Backfill(twice, "b", round); err != nil {
			return nil, fmt.Errorf("backfill under a request id: %w", err)
		}
	}
	if jobs[2].handle, err = db.Table("endless").Backfill(ctx, "c", round); err != nil {
		return nil, fmt.Errorf("backfill without end: %w", err)
	}
	if err := watchAll(ctx, jobs); err != nil {
		return nil, err
	}
	found := &seen{Number: s.rounds, Jobs: jobs}
	filter := &lemanv1.JobFilter{Labels: map[string]string{"round": fmt.Sprint(s.rounds)}}
	for job, err := range db.Jobs(ctx, filter, leman.OldestFirst()) {
		if err != nil {
			return nil, fmt.Errorf("list: %w", err)
		}
		found.Listed = append(found.Listed, job.GetJobId())
	}
	if found.Sums, err = sums(ctx, db.Table("lines")); err != nil {
		return nil, fmt.Errorf("read: %w", err)
	}
	return found, nil
}

func (s *soak) appended(ctx context.Context, table *leman.Table) error {
	builder := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	defer builder.Release()
	for row := range s.Rows {
		builder.Field(0).(*array.Int64Builder).Append(int64(s.rounds)*s.Rows + row)
	}
	batch := builder.NewRecordBatch()
	defer batch.Release()
	_, err := table.Append(ctx, leman.Batches(schema, batch))
	return err
}

func (w *watched) id() string {
	if w.handle == nil {
		return ""
	}
	return w.handle.ID()
}

// watchAll watches jobs at the same time.
func watchAll(ctx context.Context, jobs []*watched) error {
	var all sync.WaitGroup
	failures := make([]error, len(jobs))
	for number, job := range jobs {
		all.Go(func() { failures[number] = job.toItsEnd(ctx) })
	}
	all.Wait()
	for _, failed := range failures {
		if failed != nil {
			return failed
		}
	}
	return nil
}

// toItsEnd watches a job, cancels it once it runs where it is to be, and watches it again.
func (w *watched) toItsEnd(ctx context.Context) (err error) {
	w.Job = w.id()
	if w.First, err = w.watch(ctx, w.Name == "cancelled"); err != nil {
		return fmt.Errorf("watch %s: %w", w.Name, err)
	}
	if w.Second, err = w.watch(ctx, false); err != nil {
		return fmt.Errorf("watch %s again: %w", w.Name, err)
	}
	ended, err := w.handle.Get(ctx)
	if err != nil {
		return fmt.Errorf("get %s: %w", w.Name, err)
	}
	w.State, w.Attempt = stateName(ended), ended.GetAttempt()
	return nil
}

func (w *watched) watch(ctx context.Context, cancel bool) (*watch, error) {
	found := &watch{Sequences: []int64{}, Events: []int64{}}
	for update, err := range w.handle.Watch(ctx) {
		if err != nil {
			return nil, err
		}
		found.Sequences = append(found.Sequences, update.Sequence)
		for _, event := range update.Events {
			found.Events = append(found.Events, event.GetSequence())
		}
		found.Missing = found.Missing || update.EventsMissing
		found.End = stateName(update.Job)
		if cancel && found.End == "RUNNING" {
			cancel = false
			if _, err := w.handle.Cancel(ctx); err != nil {
				return nil, fmt.Errorf("cancel: %w", err)
			}
		}
	}
	return found, nil
}

func stateName(job *lemanv1.Job) string {
	return strings.TrimPrefix(job.GetState().String(), "STATE_")
}

// sums reads all rows, and adds up each column.
func sums(ctx context.Context, table *leman.Table) (map[string]int64, error) {
	rows, err := table.Read(ctx, leman.Columns("id", "a", "b"))
	if err != nil {
		return nil, err
	}
	found := map[string]int64{"rows": 0}
	for batch, err := range rows.All() {
		if err != nil {
			return nil, err
		}
		found["rows"] += batch.NumRows()
		for number, field := range batch.Schema().Fields() {
			for _, value := range batch.Column(number).(*array.Int64).Int64Values() {
				found[field.Name] += value
			}
		}
	}
	return found, nil
}
