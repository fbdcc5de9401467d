package functions

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/flight"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"leman.dev/go/leman"
)

const (
	protocol = "leman.function.v1"
	describe = protocol + ".describe"
)

// service is the Flight service of a server.
type service struct {
	flight.BaseFlightServer
	server   *Server
	stopping <-chan struct{} // closed when the server stops
}

// described is the description of a function that is sent to clients.
type described struct {
	Function    string `json:"function"`
	Version     string `json:"version"`
	Inputs      string `json:"inputs"`
	Output      string `json:"output"`
	Description string `json:"description,omitempty"`
}

// ListActions lists the only action.
func (s *service) ListActions(_ *flight.Empty, stream flight.FlightService_ListActionsServer) error {
	return stream.Send(&flight.ActionType{Type: describe, Description: "The functions of this server, as JSON"})
}

// DoAction returns the descriptions of the functions.
func (s *service) DoAction(action *flight.Action, stream flight.FlightService_DoActionServer) error {
	if action.GetType() != describe {
		return status.Errorf(codes.Unimplemented, "there is no action %q, only %s", action.GetType(), describe)
	}
	for _, one := range s.server.all() {
		told, err := one.describe()
		if err != nil {
			return status.Error(codes.Internal, err.Error())
		}
		if err := stream.Send(&flight.Result{Body: told}); err != nil {
			return err
		}
	}
	return nil
}

func (f *function) describe() ([]byte, error) {
	inputs, err := leman.EncodeSchema(f.inputSchema())
	if err != nil {
		return nil, err
	}
	output, err := leman.EncodeSchema(arrow.NewSchema(f.outputSchema().Fields(), nil))
	if err != nil {
		return nil, err
	}
	return json.Marshal(described{
		Function: f.name, Version: f.version, Description: f.description,
		Inputs: base64.StdEncoding.EncodeToString(inputs), Output: base64.StdEncoding.EncodeToString(output),
	})
}

// request is what a client sends at the start of a stream.
type request struct {
	Protocol string `json:"protocol"`
	Function string `json:"function"`
	Version  string `json:"version"`
}

// DoExchange computes batches.
func (s *service) DoExchange(stream flight.FlightService_DoExchangeServer) error {
	first, err := stream.Recv()
	if errors.Is(err, io.EOF) {
		return status.Error(codes.InvalidArgument, "the stream has no descriptor: send the schema of the inputs with one")
	}
	if err != nil {
		return err
	}
	called, err := s.find(first.GetFlightDescriptor())
	if err != nil {
		return err
	}
	return s.exchange(called, first, stream)
}

// find returns the function that a descriptor names.
func (s *service) find(descriptor *flight.FlightDescriptor) (*function, error) {
	var asked request
	wrong := json.Unmarshal(descriptor.GetCmd(), &asked)
	if descriptor.GetType() != flight.DescriptorCMD || wrong != nil || asked.Protocol != protocol {
		return nil, status.Errorf(codes.InvalidArgument, "the descriptor is no command of %s", protocol)
	}
	s.server.lock.RLock()
	defer s.server.lock.RUnlock()
	found := s.server.byName[asked.Function]
	if found == nil {
		return nil, status.Errorf(codes.NotFound, "there is no function %q here, but %s",
			asked.Function, strings.Join(s.server.names, ", "))
	}
	if found.version != asked.Version {
		return nil, status.Errorf(codes.FailedPrecondition, "%s is here in version %s, and version %s was asked for",
			found.name, found.version, asked.Version)
	}
	return found, nil
}

// accepts returns an error if the function cannot compute batches of a schema. The caller may use any column names, but
// order and types must match.
func (f *function) accepts(schema *arrow.Schema) error {
	fits := len(schema.Fields()) == len(f.inputs)
	for i := 0; fits && i < len(f.inputs); i++ {
		fits = arrow.TypeEqual(schema.Field(i).Type, f.inputs[i].Type)
	}
	if !fits {
		return status.Errorf(codes.InvalidArgument, "%s takes (%s), and was sent (%s)",
			f.name, typesOf(f.inputs), typesOf(schema.Fields()))
	}
	return nil
}

func typesOf(fields []arrow.Field) string {
	types := make([]string, len(fields))
	for i, field := range fields {
		types[i] = field.Type.String()
	}
	return strings.Join(types, ", ")
}
