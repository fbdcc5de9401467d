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
	// inlineBundle is how large a bundle may be that travels with its definition, whatever the services allow.
	inlineBundle = 512 << 10
	bundlePiece  = 512 << 10
)

// Functions lists the registered functions, by name, then newest first.
func (d *Database) Functions(ctx context.Context, options ...ListOption) iter.Seq2[*lemanv1.UdfDefinition, error] {
	return listed(ctx, options, func(ctx context.Context, size int32, token string) ([]*lemanv1.UdfDefinition, string, error) {
		page, err := d.client.catalog().ListUdfs(ctx,
			&lemanv1.ListUdfsRequest{Database: d.name, PageSize: size, PageToken: token})
		return page.GetDefinitions(), page.GetNextPageToken(), err
	})
}

// Function tells what is registered under a name and version; with an empty version the one registered last.
func (d *Database) Function(ctx context.Context, name, version string) (*lemanv1.GetUdfResponse, error) {
	ref := &lemanv1.UdfRef{Name: name, Version: version}
	return d.client.catalog().GetUdf(ctx, &lemanv1.GetUdfRequest{Database: d.name, Udf: ref})
}

// EntrypointFunction defines a function that is installed on the workers, by its name there ("package.module:name"). The
// inputs are its parameters: names of columns, with types where these are to be checked (else [arrow.Null]). More of the
// definition, such as its error policy, may be set in what is returned.
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

// RegisterFunction stores a function under its name and version; created is false when the same definition was there.
// Its options may be set again under the same version.
func (d *Database) RegisterFunction(ctx context.Context, definition *lemanv1.UdfDefinition) (created bool, err error) {
	if definition == nil {
		return false, invalid("definition", "definition is nil: give that of the function")
	}
	request := &lemanv1.RegisterUdfRequest{Database: d.name, Definition: definition}
	answer, err := d.client.catalog().RegisterUdf(ctx, request)
	return answer.GetCreated(), err
}

// RegisterRemote stores a function that servers of yours compute (see package functions), at "grpc://host:port" or
// "grpc+tls://host:port": at least one has to answer, and all that do have to serve the same. It returns the definition
// as it is stored, with the version and the types that they tell. Changes to what is asked for may name the version that
// is wanted, other input columns than the parameters, an error policy, or what the servers call the function. The same
// version may be registered again with other addresses.
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

// RegisterBundle stores a function whose code is a bundle that Python made, whatever its size, and says of the
// definition which bundle that is. pythonVersion is that of the Python that made it, such as "3.12".
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

// UploadBundle stores a bundle for a function that is registered afterwards. It is read twice, once for its digest, and
// again where the services went away. created is false when it was there.
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
			break // the answer, or what went wrong, is there already
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
