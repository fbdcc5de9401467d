package leman

import (
	"context"
	"iter"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"google.golang.org/protobuf/types/known/fieldmaskpb"

	lemanv1 "leman.dev/go/leman/v1"
)

// Database is a handle for a folder, or a prefix of an object store, that holds tables. Create one with
// [Client.Database].
type Database struct {
	client *Client
	name   string
}

// Name returns the name, path or URI with which the handle was created.
func (d *Database) Name() string { return d.name }

// Client returns the client that created the handle.
func (d *Database) Client() *Client { return d.client }

// orNone returns an unusable database instead of nil, whose methods return an error. Zero values of other types have a
// nil database.
func (d *Database) orNone() *Database {
	if d == nil {
		return &Database{}
	}
	return d
}

func (d *Database) ref(table string) *lemanv1.TableRef {
	return &lemanv1.TableRef{Database: d.name, Table: table}
}

// Tables lists the names of the tables and views, in order.
func (d *Database) Tables(ctx context.Context, options ...ListOption) iter.Seq2[string, error] {
	return listed(ctx, options, func(ctx context.Context, size int32, token string) ([]string, string, error) {
		page, err := d.client.catalog().ListTables(ctx,
			&lemanv1.ListTablesRequest{Database: d.name, PageSize: size, PageToken: token})
		return page.GetTables(), page.GetNextPageToken(), err
	})
}

// Table returns a handle for a table. It makes no call; use [Table.Describe] to learn whether the table exists.
func (d *Database) Table(name string) *Table { return &Table{relation{d, name}} }

// OpenTable returns a handle for an existing table. If there is none, the error has the reason TABLE_NOT_FOUND.
func (d *Database) OpenTable(ctx context.Context, name string) (*Table, error) {
	table := d.Table(name)
	_, err := table.Describe(ctx)
	if err != nil {
		return nil, err
	}
	return table, nil
}

// CreateOption is an option of [Database.CreateTable] and [Database.CreateTableFrom].
type CreateOption func(*createSettings)

type createSettings struct {
	request *lemanv1.CreateTableRequest
	append  []AppendOption
}

// WithoutStableRowIDs creates a table whose row ids change with updates and compaction. Leman then has to compute some
// rows again that it could reuse otherwise.
func WithoutStableRowIDs() CreateOption {
	return func(s *createSettings) { s.request.StableRowIds = new(bool) }
}

// Appending passes options for adding the first rows of the table.
func Appending(options ...AppendOption) CreateOption {
	return func(s *createSettings) { s.append = append(s.append, options...) }
}

// CreateTable creates an empty table.
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
	added := &lemanv1.AppendRowsHeader{} // validate the options before the table exists
	for _, option := range s.append {
		option(added)
	}
	if err := noneNegative(amount{"max_rows_per_fragment", added.GetMaxRowsPerFragment()}); err != nil {
		return nil, err
	}
	_, err = d.client.tables().CreateTable(ctx, s.request)
	return s, err
}

// CreateTableFrom creates a table and adds rows to it. If adding the rows fails, it drops the table, unless the caller
// set a request id with [WithRequestID]: then the table stays, and another call with that id can continue.
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

// ForceOption is the type of [Force].
type ForceOption interface{ force() }

func (forceOption) force() {}

// Force makes a change although other objects depend on what it removes. Each method says what happens to these
// objects.
func Force() ForceOption { return forceOption{} }

// forced returns true if [Force] is among the options.
func forced(options []ForceOption) bool {
	return slices.ContainsFunc(options, func(option ForceOption) bool { return option != nil })
}

// DropTable removes a table with all its versions, computed values and checkpoints. The history of its jobs stays. It
// is refused if views depend on the table, or if jobs of the table have not ended. With [Force] the table is dropped
// anyway: the views keep their rows but cannot be refreshed, and the jobs fail.
func (d *Database) DropTable(ctx context.Context, name string, options ...ForceOption) error {
	_, err := d.client.tables().DropTable(ctx, &lemanv1.DropTableRequest{Table: d.ref(name), Force: forced(options)})
	return err
}

// RenameTable renames a table atomically. References to the old name are not updated, so it is refused if views or jobs
// refer to the table, unless you pass [Force].
func (d *Database) RenameTable(ctx context.Context, name, newName string, options ...ForceOption) (*Table, error) {
	request := &lemanv1.RenameTableRequest{Table: d.ref(name), NewName: newName, Force: forced(options)}
	if _, err := d.client.tables().RenameTable(ctx, request); err != nil {
		return nil, err
	}
	return d.Table(newName), nil
}

// Verify reads all stored data of the database and compares it with the recorded digests. Each message reports what was
// checked since the previous one. If the call is interrupted, it continues after the last message. To continue an
// earlier call, pass the resumeToken of its last message; an empty token starts from the beginning.
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

// Databases lists the registered databases.
func (c *Client) Databases(ctx context.Context, options ...ListOption) iter.Seq2[*lemanv1.Database, error] {
	return listed(ctx, options, func(ctx context.Context, size int32, token string) ([]*lemanv1.Database, string, error) {
		page, err := c.databases().ListDatabases(ctx, &lemanv1.ListDatabasesRequest{PageSize: size, PageToken: token})
		c.warn(ctx, page.GetWarnings())
		return page.GetDatabases(), page.GetNextPageToken(), err
	})
}

// RegisterDatabase registers a name for a database. It writes nothing to the database itself.
func (c *Client) RegisterDatabase(ctx context.Context, database *lemanv1.Database) (*lemanv1.Database, error) {
	if database == nil {
		return nil, invalid("database", "database is nil: give its name and where it is")
	}
	answer, err := c.databases().RegisterDatabase(ctx, &lemanv1.RegisterDatabaseRequest{Database: database})
	return answer.GetDatabase(), err
}

// GetDatabase returns the registration of a name.
func (c *Client) GetDatabase(ctx context.Context, name string) (*lemanv1.Database, error) {
	answer, err := c.databases().GetDatabase(ctx, &lemanv1.GetDatabaseRequest{Name: name})
	return answer.GetDatabase(), err
}

// UpdateDatabase changes the registration of a database: those of its fields description, labels and limits that are
// listed in fields.
func (c *Client) UpdateDatabase(ctx context.Context, database *lemanv1.Database, fields ...string) (*lemanv1.Database, error) {
	if database == nil {
		return nil, invalid("database", "database is nil: give its name and what changes")
	}
	mask := &fieldmaskpb.FieldMask{Paths: fields}
	answer, err := c.databases().UpdateDatabase(ctx, &lemanv1.UpdateDatabaseRequest{Database: database, UpdateMask: mask})
	return answer.GetDatabase(), err
}

// UnregisterDatabase removes a registered name. The tables of the database stay. It is refused if jobs of the database
// have not ended; with [Force] the name is removed anyway, and the jobs continue.
func (c *Client) UnregisterDatabase(ctx context.Context, name string, options ...ForceOption) error {
	request := &lemanv1.UnregisterDatabaseRequest{Name: name, Force: forced(options)}
	_, err := c.databases().UnregisterDatabase(ctx, request)
	return err
}
