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

// listed gives the items of a paged listing, as its options say.
func listed[T any](
	ctx context.Context, options []ListOption,
	fetch func(ctx context.Context, size int32, token string) (items []T, next string, err error),
) iter.Seq2[T, error] {
	var s listSettings
	if err := allGiven("options", options); err != nil {
		return nothingBut[T](err)
	}
	for _, option := range options {
		option.list(&s)
	}
	if err := noneNegative(amount{"page_size", int64(s.pageSize)}); err != nil {
		return nothingBut[T](err)
	}
	return pages(ctx, func(ctx context.Context, token string) ([]T, string, error) {
		return fetch(ctx, s.pageSize, token)
	})
}

// nothingBut gives an error, and ends.
func nothingBut[T any](err error) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var none T
		yield(none, err)
	}
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
	if items == nil {
		return nil, invalid("items", "items is nil: give what a listing returned")
	}
	var all []T
	for item, err := range items {
		if err != nil {
			return all, err
		}
		all = append(all, item)
	}
	return all, nil
}
