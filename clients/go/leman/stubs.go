package leman

import lemanv1 "leman.dev/go/leman/v1"

// made returns an error for a zero value, which this package did not create.
func (c *Client) made() error {
	if c == nil || c.endpoint == nil {
		return invalid("client", "there is no connection: make the client by Connect or ConnectLocal, and the others by its"+
			" Database and the methods of that")
	}
	return nil
}

func (c *Client) catalog() lemanv1.CatalogServiceClient { return lemanv1.NewCatalogServiceClient(c) }

func (c *Client) commits() lemanv1.CommitServiceClient { return lemanv1.NewCommitServiceClient(c) }

func (c *Client) databases() lemanv1.DatabaseServiceClient {
	return lemanv1.NewDatabaseServiceClient(c)
}

func (c *Client) info() lemanv1.InfoServiceClient { return lemanv1.NewInfoServiceClient(c) }

func (c *Client) jobs() lemanv1.JobServiceClient { return lemanv1.NewJobServiceClient(c) }

func (c *Client) planner() lemanv1.PlannerServiceClient { return lemanv1.NewPlannerServiceClient(c) }

func (c *Client) tables() lemanv1.TableServiceClient { return lemanv1.NewTableServiceClient(c) }
