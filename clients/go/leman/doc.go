// Package leman is the Go client of Leman: computed columns and materialized views for Lance tables.
//
// [Connect] opens a [Client], [Client.Database] names a database, and from there on [Table], [View] and [Job] are what
// their names say. Messages are the generated ones of package lemanv1; rows are Arrow record batches.
//
// Every call may be made by several goroutines at once. Calls that change nothing, or carry a request id (the client
// gives each mutation one), are sent again while services restart; watches, reads and waits continue where they were.
// Errors are of type [*Error]:
//
//	var failed *leman.Error
//	if errors.As(err, &failed) && failed.Reason == "TABLE_NOT_FOUND" { … }
//
// A Client is a [google.golang.org/grpc.ClientConnInterface]: the generated stubs work on it, for whatever has no
// method here, with the same token, retries, request ids and errors.
package leman
