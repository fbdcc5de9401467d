package leman

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc"

	lemanv1 "leman.dev/go/leman/v1"
)

// servedBy has the gRPC services that each process serves.
var servedBy = map[string][]string{
	"planner":            {"leman.v1.CatalogService", "leman.v1.DatabaseService", "leman.v1.PlannerService"},
	"executor":           {"leman.v1.JobService"},
	"commit_coordinator": {"leman.v1.CommitService", "leman.v1.TableService"},
}

// directContact is how long [Connect] waits for the services whose addresses it got from the endpoint.
const directContact = 2 * time.Second

// discover connects directly to those services that answer at the addresses which the endpoint returned.
func (c *Client) discover(ctx context.Context, told *lemanv1.GetInfoResponse, s *settings) {
	ctx, cancel := context.WithTimeout(ctx, directContact)
	defer cancel()
	named := map[string]string{
		"planner": told.GetPlannerAddress(), "executor": told.GetExecutorAddress(),
		"commit_coordinator": told.GetCommitCoordinatorAddress(),
	}
	delete(named, told.GetService()) // the endpoint's own service: its connection exists already
	found := make(chan answering, len(named))
	var all sync.WaitGroup
	for service, address := range named {
		all.Go(func() {
			if conn := c.reach(ctx, service, address, s); conn != nil {
				found <- answering{service, conn}
			}
		})
	}
	all.Wait()
	close(found)
	for one := range found {
		for _, name := range servedBy[one.service] {
			c.direct[name] = one.conn
		}
	}
}

// answering is a connection to a service that answered.
type answering struct {
	service string
	conn    *grpc.ClientConn
}

// reach returns a connection to a service, or nil if the service does not answer from here.
func (c *Client) reach(ctx context.Context, service, address string, s *settings) *grpc.ClientConn {
	if hosts, err := hostsOf(address); err != nil || s.exposed(hosts) != "" {
		return nil // a token would be sent there unencrypted
	}
	conn, err := dial(address, s)
	if err != nil {
		return nil
	}
	probe := &Client{endpoint: conn, tokens: c.tokens, patience: c.patience, logger: c.logger, life: c.life}
	told, err := lemanv1.NewInfoServiceClient(probe).GetInfo(ctx, &lemanv1.GetInfoRequest{})
	if err != nil || told.GetService() != service {
		_ = conn.Close()
		return nil
	}
	return conn
}
