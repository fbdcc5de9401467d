package functions

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"leman.dev/go/leman"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var int64s = arrow.NewSchema([]arrow.Field{{Name: "n", Type: arrow.PrimitiveTypes.Int64, Nullable: true}}, nil)

// served runs a server during a test; stop ends it and returns the result of Serve.
func served(t *testing.T, server *Server) (address string, stop func() error) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err == nil, "%v", err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- server.ServeOn(ctx, listener); close(ended) }()
	stop = func() error { cancel(); return <-ended }
	t.Cleanup(func() { _ = stop() })
	return listener.Addr().String(), stop
}

func connected(t *testing.T, address string, secured credentials.TransportCredentials) flight.Client {
	t.Helper()
	client, err := flight.NewClientWithMiddleware(address, nil, nil, grpc.WithTransportCredentials(secured))
	check(t, err == nil, "%v", err)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// stream is a client's side of an exchange.
type stream struct {
	t       *testing.T
	calls   flight.FlightService_DoExchangeClient
	writer  *flight.Writer
	answers *flight.Reader
}

func ask(t *testing.T, client flight.Client, name, version string, schema *arrow.Schema) *stream {
	t.Helper()
	calls, err := client.DoExchange(t.Context())
	check(t, err == nil, "%v", err)
	command, err := json.Marshal(request{Protocol: protocol, Function: name, Version: version})
	check(t, err == nil, "%v", err)
	writer := flight.NewRecordWriter(calls, ipc.WithSchema(schema))
	writer.SetFlightDescriptor(&flight.FlightDescriptor{Type: flight.DescriptorCMD, Cmd: command})
	t.Cleanup(func() { _ = writer.Close() })
	return &stream{t: t, calls: calls, writer: writer}
}

func (s *stream) send(values ...any) {
	s.t.Helper()
	text, err := json.Marshal(rowsOf(values))
	check(s.t, err == nil, "%v", err)
	batch, _, err := array.RecordFromJSON(memory.DefaultAllocator, int64s, strings.NewReader(string(text)))
	check(s.t, err == nil, "%v", err)
	check(s.t, s.writer.Write(batch) == nil, "cannot be sent")
}

func rowsOf(values []any) []map[string]any {
	rows := []map[string]any{}
	for _, value := range values {
		rows = append(rows, map[string]any{"n": value})
	}
	return rows
}

// receive returns the next result as text: its values, or the type of its error.
func (s *stream) receive() (string, error) {
	if s.answers == nil {
		answers, err := flight.NewRecordReader(s.calls)
		if err != nil {
			return "", err
		}
		s.answers = answers
		s.t.Cleanup(answers.Release)
	}
	batch, err := s.answers.Read()
	if err != nil {
		return "", err
	}
	return batch.Column(0).String(), nil
}

// failed returns the next result, which must be an error.
func (s *stream) failed() failure {
	s.t.Helper()
	message, err := s.calls.Recv()
	check(s.t, err == nil && len(message.GetDataHeader()) == 0, "%v %v", message, err)
	var told map[string]failure
	check(s.t, json.Unmarshal(message.GetAppMetadata(), &told) == nil, "%s", message.GetAppMetadata())
	return told["error"]
}

func next(t *testing.T, results flight.FlightService_DoActionClient) (told described) {
	t.Helper()
	result, err := results.Recv()
	check(t, err == nil, "%v", err)
	check(t, json.Unmarshal(result.GetBody(), &told) == nil, "%s", result.GetBody())
	return told
}

func schemaOf(t *testing.T, text string) *arrow.Schema {
	t.Helper()
	message, err := base64.StdEncoding.DecodeString(text)
	check(t, err == nil, "%v", err)
	schema, err := leman.DecodeSchema(message)
	check(t, err == nil, "%v", err)
	return schema
}

func certificate(t *testing.T) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(t, err == nil, "%v", err)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	made, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	check(t, err == nil, "%v", err)
	encoded, err := x509.MarshalECPrivateKey(private)
	check(t, err == nil, "%v", err)
	written := func(name, kind string, content []byte) string {
		path := filepath.Join(t.TempDir(), name)
		text := pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: content})
		check(t, os.WriteFile(path, text, 0o600) == nil, "cannot be written")
		return path
	}
	return written("cert.pem", "CERTIFICATE", made), written("key.pem", "EC PRIVATE KEY", encoded)
}

func nothing(context.Context, arrow.RecordBatch) (arrow.Array, error) {
	return nil, errors.New("nothing")
}

func check(t *testing.T, holds bool, format string, values ...any) {
	t.Helper()
	if !holds {
		t.Fatalf(format, values...)
	}
}
