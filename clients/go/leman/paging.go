package leman

import (
	"context"
	"iter"
)

// ListOption changes how a listing is asked for.
type ListOption interface {
	JobListOption
	ErrorListOption
	list(*listSettings)
}

type listSettings struct {
	pageSize    int32
	oldestFirst bool
}

type pageSizeOption int32

// PageSize asks for so many items in a call, at most 1,000; 100, unless it is given. A listing gives all items all the same.
func PageSize(n int32) ListOption { return pageSizeOption(n) }

func (n pageSizeOption) list(s *listSettings)     { s.pageSize = int32(n) }
func (n pageSizeOption) listJobs(s *listSettings) { s.pageSize = int32(n) }

func listed(options []ListOption) int32 {
	var s listSettings
	for _, option := range options {
		option.list(&s)
	}
	return s.pageSize
}

// pages gives the items of a paged listing, one after the other. The next page is asked for when it is needed. An error
// ends it.
func pages[T any](
	ctx context.Context, fetch func(ctx context.Context, token string) (items []T, next string, err error),
) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for token := ""; ; {
			items, next, err := fetch(ctx, token)
			if err != nil {
				var none T
				yield(none, err)
				return
			}
			for _, item := range items {
				if !yield(item, nil) {
					return
				}
			}
			if token = next; token == "" {
				return
			}
		}
	}
}

// Collect takes all that an iterator of this package gives, up to its first error.
func Collect[T any](items iter.Seq2[T, error]) ([]T, error) {
	var all []T
	for item, err := range items {
		if err != nil {
			return all, err
		}
		all = append(all, item)
	}
	return all, nil
}
