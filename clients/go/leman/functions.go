package leman

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"iter"

	"github.com/apache/arrow-go/v18/arrow"

	lemanv1 "leman.dev/go/leman/v1"
)

const (
	// inlineBundle is the largest bundle that is sent within the definition; larger ones are uploaded, even if the
	// services would accept them.
	inlineBundle = 512 << 10
	bundlePiece  = 512 << 10
)

// Functions lists the registered functions, by name, and the newest version of each first.
func (d *Database) Functions(ctx context.Context, options ...ListOption) iter.Seq2[*lemanv1.UdfDefinition, error] {
	return listed(ctx, options, func(ctx context.Context, size int32, token string) ([]*lemanv1.UdfDefinition, string, error) {
		page, err := d.client.catalog().ListUdfs(ctx,
			&lemanv1.ListUdfsRequest{Database: d.name, PageSize: size, PageToken: token})
		return page.GetDefinitions(), page.GetNextPageToken(), err
	})
}

// Function returns the registration of a name and version. An empty version means the one that was registered last.
func (d *Database) Function(ctx context.Context, name, version string) (*lemanv1.GetUdfResponse, error) {
	ref := &lemanv1.UdfRef{Name: name, Version: version}
	return d.client.catalog().GetUdf(ctx, &lemanv1.GetUdfRequest{Database: d.name, Udf: ref})
}

// EntrypointFunction defines a function that is installed on the workers, by its name there ("package.module:name").
// Each input is a parameter of the function: the name of a column, with its type if the services are to check it, or
// else with [arrow.Null]. You can set other parts of the returned definition, such as its error policy.
func EntrypointFunction(
	name, version, entrypoint string, kind lemanv1.UdfDefinition_Kind, inputs []arrow.Field, output arrow.DataType,
) (*lemanv1.UdfDefinition, error) {
	definition, err := define(name, version, kind, output)
	if err != nil {
		return nil, err
	}
	if err := typesGiven("inputs", inputs); err != nil {
		return nil, err
	}
	declared := make([]arrow.Field, len(inputs))
	for i, input := range inputs {
		declared[i] = arrow.Field{Name: input.Name, Type: input.Type, Nullable: true, Metadata: input.Metadata}
		definition.InputColumns = append(definition.InputColumns, input.Name)
	}
	definition.Code = &lemanv1.UdfDefinition_Entrypoint{Entrypoint: entrypoint}
	definition.InputSchema, err = EncodeSchema(arrow.NewSchema(declared, nil))
	return definition, err
}

// SQLFunction defines a function by a SQL expression over its inputs, which are names of columns.
func SQLFunction(name, version, expression string, inputs []string, output arrow.DataType) (*lemanv1.UdfDefinition, error) {
	definition, err := define(name, version, lemanv1.UdfDefinition_KIND_SQL, output)
	if err != nil {
		return nil, err
	}
	definition.InputColumns = inputs
	definition.Code = &lemanv1.UdfDefinition_SqlExpression{SqlExpression: expression}
	return definition, nil
}

func define(
	name, version string, kind lemanv1.UdfDefinition_Kind, output arrow.DataType,
) (*lemanv1.UdfDefinition, error) {
	if isNil(output) {
		return nil, invalid("output", "output is nil: give the type of the function's values")
	}
	result := arrow.Field{Name: name, Type: output, Nullable: true}
	schema, err := EncodeSchema(arrow.NewSchema([]arrow.Field{result}, nil))
	return &lemanv1.UdfDefinition{Name: name, Version: version, Kind: kind, OutputSchema: schema}, err
}

// RegisterFunction stores a function under its name and version. It returns false if the same definition was registered
// before. You can register a version again with other options.
func (d *Database) RegisterFunction(ctx context.Context, definition *lemanv1.UdfDefinition) (created bool, err error) {
	if definition == nil {
		return false, invalid("definition", "definition is nil: give that of the function")
	}
	request := &lemanv1.RegisterUdfRequest{Database: d.name, Definition: definition}
	answer, err := d.client.catalog().RegisterUdf(ctx, request)
	return answer.GetCreated(), err
}

// RegisterRemote registers a function that your own servers compute (see package functions). Their addresses have the
// form "grpc://host:port" or "grpc+tls://host:port". At least one server must answer, and all servers that answer must
// serve the same version. It returns the stored definition, with the version and types that the servers report. With
// changes you can set fields of the request: the expected version, input columns with other names than the parameters,
// an error policy, or the name under which the servers serve the function. You can register the same version again with
// other addresses.
func (d *Database) RegisterRemote(
	ctx context.Context, name string, addresses []string, changes ...func(*lemanv1.UdfDefinition),
) (*lemanv1.UdfDefinition, error) {
	if err := allGiven("changes", changes); err != nil {
		return nil, err
	}
	definition := &lemanv1.UdfDefinition{Name: name, Kind: lemanv1.UdfDefinition_KIND_REMOTE}
	served := &lemanv1.RemoteFunction{Addresses: addresses}
	definition.Code = &lemanv1.UdfDefinition_RemoteFunction{RemoteFunction: served}
	for _, change := range changes {
		change(definition)
	}
	request := &lemanv1.RegisterUdfRequest{Database: d.name, Definition: definition}
	answer, err := d.client.catalog().RegisterUdf(ctx, request)
	d.client.warn(ctx, answer.GetWarnings())
	return answer.GetDefinition(), err
}

// RegisterBundle registers a function whose code is a bundle of any size that Python made, and sets the bundle's digest
// in the definition. pythonVersion is the version of the Python that made it, such as "3.12".
func (d *Database) RegisterBundle(
	ctx context.Context, definition *lemanv1.UdfDefinition, bundle []byte, pythonVersion string,
) (created bool, err error) {
	if definition == nil {
		return false, invalid("definition", "definition is nil: give that of the function")
	}
	digest := sha256.Sum256(bundle)
	definition.Code = &lemanv1.UdfDefinition_PythonBundle{PythonBundle: &lemanv1.PythonBundle{
		Sha256: hex.EncodeToString(digest[:]), PythonVersion: pythonVersion, SizeBytes: int64(len(bundle)),
	}}
	request := &lemanv1.RegisterUdfRequest{Database: d.name, Definition: definition}
	if len(bundle) <= inlineBundle {
		request.Bundle = bundle
	} else if _, err := d.UploadBundle(ctx, bytes.NewReader(bundle)); err != nil {
		return false, err
	}
	answer, err := d.client.catalog().RegisterUdf(ctx, request)
	return answer.GetCreated(), err
}

// UploadBundle stores a bundle for a function that will be registered later. It reads the bundle twice, the first time
// for its digest, and once more for each retry. It returns false if the bundle was already stored.
func (d *Database) UploadBundle(ctx context.Context, bundle io.ReadSeeker) (created bool, err error) {
	if isNil(bundle) {
		return false, invalid("bundle", "bundle is nil: give a reader of what Python made")
	}
	digest := sha256.New()
	size, err := io.Copy(digest, bundle)
	if err != nil {
		return false, err
	}
	header := &lemanv1.UploadBundleHeader{
		Database: d.name, Sha256: hex.EncodeToString(digest.Sum(nil)), SizeBytes: size,
	}
	err = d.client.upload(ctx, func(ctx context.Context) error {
		if _, err := bundle.Seek(-size, io.SeekEnd); err != nil {
			return err
		}
		answer, err := d.sendBundle(ctx, header, bundle)
		created = answer.GetCreated()
		return err
	})
	return created, err
}

func (d *Database) sendBundle(
	ctx context.Context, header *lemanv1.UploadBundleHeader, bundle io.Reader,
) (*lemanv1.UploadBundleResponse, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := d.client.catalog().UploadBundle(ctx)
	if err != nil {
		return nil, err
	}
	message := &lemanv1.UploadBundleRequest{Part: &lemanv1.UploadBundleRequest_Header{Header: header}}
	for {
		if err := stream.Send(message); errors.Is(err, io.EOF) {
			break // CloseAndRecv returns the response or the error
		} else if err != nil {
			return nil, err
		}
		piece := make([]byte, bundlePiece)
		n, err := io.ReadFull(bundle, piece)
		if n == 0 && errors.Is(err, io.EOF) {
			break
		}
		if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, err
		}
		message = &lemanv1.UploadBundleRequest{Part: &lemanv1.UploadBundleRequest_Data{Data: piece[:n]}}
	}
	return stream.CloseAndRecv()
}
