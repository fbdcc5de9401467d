// Package leman is the Go client of Leman: computed columns and materialized views for Lance tables.
//
// [Connect] returns a [Client], and [Client.Database] a handle for a database, whose methods return handles for its
// tables, views and jobs: [Table], [View] and [Job]. Messages are the generated types of package lemanv1; rows are Arrow
// record batches.
//
// All methods may be called concurrently. The client sets a request id in each mutation, so while services restart it
// can safely retry mutations as well as calls that only read. Watches, reads and waits continue where they were
// interrupted. Errors are of type [*Error]:
//
//	var failed *leman.Error
//	if errors.As(err, &failed) && failed.Reason == "TABLE_NOT_FOUND" { … }
//
// A Client is a [google.golang.org/grpc.ClientConnInterface]. So for calls that have no method here, you can pass it to
// the generated stubs, which then use the same token, retries, request ids and errors.
package leman
