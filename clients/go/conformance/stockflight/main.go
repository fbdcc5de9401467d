// Stockflight reads a table and writes a copy of it with arrow-go's Flight client alone: nothing of Leman's is imported.
//
//	stockflight ADDRESS TOKEN DATABASE TABLE COPY
//
// Prints one line of JSON: what it was told, and how many rows it read.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

const patience = time.Minute

type told struct {
	Flights  []string        `json:"flights"`
	Schema   []string        `json:"schema"`
	Promised int64           `json:"promised"`
	Rows     int64           `json:"rows"`
	Put      json.RawMessage `json:"put"`
}

func main() {
	if err := run(os.Args[1], os.Args[2], os.Args[3], os.Args[4], os.Args[5]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(address, token, database, table, target string) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	client, err := flight.NewClientWithMiddleware(
		address, nil, nil, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer func() { _ = client.Close() }()
	ctx, err = client.AuthenticateBasicToken(ctx, "anybody", token)
	if err != nil {
		return fmt.Errorf("handshake: %w", err)
	}
	var found told
	if found.Flights, err = list(ctx, client, database); err != nil {
		return fmt.Errorf("ListFlights: %w", err)
	}
	if err := copyTable(ctx, client, database, table, target, &found); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(found)
}

// list gives the names of the tables of a database.
func list(ctx context.Context, client flight.Client, database string) ([]string, error) {
	stream, err := client.ListFlights(ctx, &flight.Criteria{Expression: []byte(database)})
	if err != nil {
		return nil, err
	}
	var names []string
	for {
		info, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return names, nil
		}
		if err != nil {
			return nil, err
		}
		path := info.GetFlightDescriptor().GetPath()
		names = append(names, path[len(path)-1])
	}
}

func copyTable(ctx context.Context, client flight.Client, database, table, target string, found *told) error {
	info, err := client.GetFlightInfo(ctx, descriptor(database, table))
	if err != nil {
		return fmt.Errorf("GetFlightInfo: %w", err)
	}
	found.Promised = info.GetTotalRecords()
	read, err := client.DoGet(ctx, info.GetEndpoint()[0].GetTicket())
	if err != nil {
		return fmt.Errorf("DoGet: %w", err)
	}
	rows, err := flight.NewRecordReader(read)
	if err != nil {
		return fmt.Errorf("DoGet: %w", err)
	}
	defer rows.Release()
	for _, field := range rows.Schema().Fields() {
		found.Schema = append(found.Schema, field.Name+" "+field.Type.String())
	}
	put, err := client.DoPut(ctx)
	if err != nil {
		return fmt.Errorf("DoPut: %w", err)
	}
	count, err := pass(rows, put, database, target)
	if err != nil {
		return fmt.Errorf("DoPut: %w", err)
	}
	found.Rows = count
	answer, err := put.Recv()
	if err != nil {
		return fmt.Errorf("DoPut: %w", err)
	}
	found.Put = answer.GetAppMetadata()
	return nil
}

// pass writes rows to the target, which is made where it is not there, and ends the writing.
func pass(rows *flight.Reader, put flight.FlightService_DoPutClient, database, target string) (int64, error) {
	writer := flight.NewRecordWriter(put, ipc.WithSchema(plain(rows.Schema())))
	command := fmt.Sprintf(`{"table": {"database": %q, "table": %q}, "createTable": true}`, database, target)
	writer.SetFlightDescriptor(&flight.FlightDescriptor{Type: flight.DescriptorCMD, Cmd: []byte(command)})
	var count int64
	for rows.Next() {
		batch := rows.RecordBatch()
		count += batch.NumRows()
		if err := writer.Write(batch); err != nil {
			return 0, err
		}
	}
	if err := rows.Err(); err != nil {
		return 0, err
	}
	if err := writer.Close(); err != nil {
		return 0, err
	}
	return count, put.CloseSend()
}

// plain is the schema without what is said of the table that it was read from.
func plain(schema *arrow.Schema) *arrow.Schema {
	return arrow.NewSchema(schema.Fields(), nil)
}

func descriptor(database, table string) *flight.FlightDescriptor {
	return &flight.FlightDescriptor{Type: flight.DescriptorPATH, Path: []string{database, table}}
}
