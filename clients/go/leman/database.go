package leman

import (
	"context"
	"iter"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	lemanv1 "leman.dev/go/leman/v1"
)

// Database is a folder, or a prefix of an object store, of tables. It is made by [Client.Database].
type Database struct {
	client *Client
	name   string
}

// Name is what it was called: a registered name, a path or a uri.
func (d *Database) Name() string { return d.name }

// Client is the client that it was made by.
func (d *Database) Client() *Client { return d.client }

// orNone gives a database to call methods of, which then say that it is none: that of zero values is nil.
func (d *Database) orNone() *Database {
	if d == nil {
		return &Database{}
	}
	return d
}

func (d *Database) ref(table string) *lemanv1.TableRef {
	return &lemanv1.TableRef{Database: d.name, Table: table}
}

// Tables lists the names of its tables and views, in their order.
func (d *Database) Tables(ctx context.Context, options ...ListOption) iter.Seq2[string, error] {
	return listed(ctx, options, func(ctx context.Context, size int32, token string) ([]string, string, error) {
		page, err := d.client.catalog().ListTables(ctx,
			&lemanv1.ListTablesRequest{Database: d.name, PageSize: size, PageToken: token})
		return page.GetTables(), page.GetNextPageToken(), err
	})
}

// Table names a table. Nothing is called: [Table.Describe] shows whether it is there.
func (d *Database) Table(name string) *Table { return &Table{relation{d, name}} }

// OpenTable names a table that is there. The error has the reason TABLE_NOT_FOUND where it is not.
func (d *Database) OpenTable(ctx context.Context, name string) (*Table, error) {
	table := d.Table(name)
	_, err := table.Describe(ctx)
	if err != nil {
		return nil, err
	}
	return table, nil
}

// CreateOption changes a table that is made.
type CreateOption func(*createSettings)

type createSettings struct {
	request *lemanv1.CreateTableRequest
	append  []AppendOption
}

// WithoutStableRowIDs makes a table whose row ids do not survive updates and compaction: Leman then computes more than
// it needs to.
func WithoutStableRowIDs() CreateOption {
	return func(s *createSettings) { s.request.StableRowIds = new(bool) }
}

// Appending has the first rows of the table added as the options say.
func Appending(options ...AppendOption) CreateOption {
	return func(s *createSettings) { s.append = append(s.append, options...) }
}

// CreateTable makes a table without rows.
func (d *Database) CreateTable(ctx context.Context, name string, schema *arrow.Schema, options ...CreateOption) (*Table, error) {
	_, err := d.createTable(ctx, name, schema, options)
	if err != nil {
		return nil, err
	}
	return d.Table(name), nil
}

func (d *Database) createTable(
	ctx context.Context, name string, schema *arrow.Schema, options []CreateOption,
) (*createSettings, error) {
	if err := checked(ctx, options); err != nil {
		return nil, err
	}
	message, err := EncodeSchema(schema)
	if err != nil {
		return nil, err
	}
	s := &createSettings{request: &lemanv1.CreateTableRequest{
		Table:   d.ref(name),
		Columns: &lemanv1.CreateTableRequest_Schema{Schema: message},
	}}
	for _, option := range options {
		option(s)
	}
	if err := allGiven("options", s.append); err != nil {
		return nil, err
	}
	added := &lemanv1.AppendRowsHeader{} // what is wrong with it is said before there is a table
	for _, option := range s.append {
		option(added)
	}
	if err := noneNegative(amount{"max_rows_per_fragment", added.GetMaxRowsPerFragment()}); err != nil {
		return nil, err
	}
	_, err = d.client.tables().CreateTable(ctx, s.request)
	return s, err
}

// CreateTableFrom makes a table and adds rows to it. Where the rows cannot be added, the table goes again, unless
// the caller gave a request id ([WithRequestID]): then it stays for the next call under that.
func (d *Database) CreateTableFrom(ctx context.Context, name string, rows Source, options ...CreateOption) (*Table, error) {
	first, err := rows.start()
	if err != nil {
		return nil, err
	}
	s, err := d.createTable(ctx, name, first.Schema(), options)
	if err != nil {
		first.Release()
		return nil, err
	}
	table := d.Table(name)
	if _, err := table.Append(withDerivedID(ctx, "rows"), rows.startingWith(first), s.append...); err != nil {
		if !hasRequestID(ctx) {
			_ = d.DropTable(context.WithoutCancel(ctx), name, Force())
		}
		return nil, err
	}
	return table, nil
}

type forceOption struct{}

// ForceOption is given by [Force].
type ForceOption interface{ force() }

func (forceOption) force() {}

// Force has a change made although others rest on what goes. What becomes of them stands at the call.
func Force() ForceOption { return forceOption{} }

// forced shows whether [Force] is among the options.
func forced(options []ForceOption) bool {
	return slices.ContainsFunc(options, func(option ForceOption) bool { return option != nil })
}

// DropTable removes a table with all its versions, computed values and checkpoints. The history of its jobs stays. With
// [Force]: although views rest on it, which keep their rows and cannot be refreshed any more, or jobs of it have not
// ended, which fail.
func (d *Database) DropTable(ctx context.Context, name string, options ...ForceOption) error {
	_, err := d.client.tables().DropTable(ctx, &lemanv1.DropTableRequest{Table: d.ref(name), Force: forced(options)})
	return err
}

// RenameTable gives a table another name, in one step. What refers to it by its old name does not follow; with [Force]
// also where views or jobs do.
func (d *Database) RenameTable(ctx context.Context, name, newName string, options ...ForceOption) (*Table, error) {
	request := &lemanv1.RenameTableRequest{Table: d.ref(name), NewName: newName, Force: forced(options)}
	if _, err := d.client.tables().RenameTable(ctx, request); err != nil {
		return nil, err
	}
	return d.Table(newName), nil
}

// Verify reads all that the database keeps and compares it with the digests that were written with it. Each message has
// what was looked at since the one before; an interrupted call continues from there. resumeToken: that of a message of an
// earlier call; empty: from the beginning.
func (d *Database) Verify(ctx context.Context, resumeToken string) iter.Seq2[*lemanv1.VerifyDatabaseResponse, error] {
	return func(yield func(*lemanv1.VerifyDatabaseResponse, error) bool) {
		token := resumeToken
		open := func(ctx context.Context) (messages[lemanv1.VerifyDatabaseResponse], error) {
			return d.client.commits().VerifyDatabase(ctx,
				&lemanv1.VerifyDatabaseRequest{Database: d.name, ResumeToken: token}, onceByGRPC)
		}
		seen := func(message *lemanv1.VerifyDatabaseResponse) (last bool) {
			token = message.GetResumeToken()
			return token == ""
		}
		resumed(ctx, d.client, open, seen, 0)(yield)
	}
}

// Databases lists the databases that have names.
func (c *Client) Databases(ctx context.Context, options ...ListOption) iter.Seq2[*lemanv1.Database, error] {
	return listed(ctx, options, func(ctx context.Context, size int32, token string) ([]*lemanv1.Database, string, error) {
		page, err := c.databases().ListDatabases(ctx, &lemanv1.ListDatabasesRequest{PageSize: size, PageToken: token})
		c.warn(ctx, page.GetWarnings())
		return page.GetDatabases(), page.GetNextPageToken(), err
	})
}

// RegisterDatabase gives a database a name. Nothing is written to the database itself.
func (c *Client) RegisterDatabase(ctx context.Context, database *lemanv1.Database) (*lemanv1.Database, error) {
	if database == nil {
		return nil, invalid("database", "database is nil: give its name and where it is")
	}
	answer, err := c.databases().RegisterDatabase(ctx, &lemanv1.RegisterDatabaseRequest{Database: database})
	return answer.GetDatabase(), err
}

// GetDatabase tells what is registered under a name.
func (c *Client) GetDatabase(ctx context.Context, name string) (*lemanv1.Database, error) {
	answer, err := c.databases().GetDatabase(ctx, &lemanv1.GetDatabaseRequest{Name: name})
	return answer.GetDatabase(), err
}

// UpdateDatabase changes what is said of a database: the fields of it that are named, of description, labels and limits.
func (c *Client) UpdateDatabase(ctx context.Context, database *lemanv1.Database, fields ...string) (*lemanv1.Database, error) {
	if database == nil {
		return nil, invalid("database", "database is nil: give its name and what changes")
	}
	mask := &fieldmaskpb.FieldMask{Paths: fields}
	answer, err := c.databases().UpdateDatabase(ctx, &lemanv1.UpdateDatabaseRequest{Database: database, UpdateMask: mask})
	return answer.GetDatabase(), err
}

// UnregisterDatabase takes a name from a database, whose tables stay. With [Force]: although jobs of it have not ended,
// which go on.
func (c *Client) UnregisterDatabase(ctx context.Context, name string, options ...ForceOption) error {
	request := &lemanv1.UnregisterDatabaseRequest{Name: name, Force: forced(options)}
	_, err := c.databases().UnregisterDatabase(ctx, request)
	return err
}
