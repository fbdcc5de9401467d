package leman

import (
	"context"
	"iter"
)

// ListOption is an option of the methods that list items.
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

// PageSize sets how many items one call fetches: at most 1,000; the default is 100. The listing still returns all
// items.
func PageSize(n int32) ListOption { return pageSizeOption(n) }

func (n pageSizeOption) list(s *listSettings)     { s.pageSize = int32(n) }
func (n pageSizeOption) listJobs(s *listSettings) { s.pageSize = int32(n) }

// listed returns the items of a paged listing, with the given options.
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

// nothingBut returns an iterator that yields only an error.
func nothingBut[T any](err error) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var none T
		yield(none, err)
	}
}

// pages returns the items of a paged listing, one after the other, and fetches each page when it is needed. It ends
// after an error.
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

// Collect returns all items of an iterator of this package, up to its first error.
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
