// Generated from protos/leman/v1/service_config.json by scripts/protogen-typescript; do not edit.

export const serviceConfig = {
  methodConfig: [
    {
      name: [
        {
          service: "leman.v1.CatalogService",
          method: "RegisterUdf",
        },
        {
          service: "leman.v1.CatalogService",
          method: "UploadBundle",
        },
        {
          service: "leman.v1.CatalogService",
          method: "GetUdf",
        },
        {
          service: "leman.v1.CatalogService",
          method: "ListUdfs",
        },
        {
          service: "leman.v1.CatalogService",
          method: "DescribeTable",
        },
        {
          service: "leman.v1.CatalogService",
          method: "ListTables",
        },
        {
          service: "leman.v1.CatalogService",
          method: "GetMaterializedView",
        },
        {
          service: "leman.v1.CatalogService",
          method: "ListMaterializedViews",
        },
        {
          service: "leman.v1.PlannerService",
          method: "ExplainPlan",
        },
        {
          service: "leman.v1.PlannerService",
          method: "ExplainRefresh",
        },
        {
          service: "leman.v1.PlannerService",
          method: "GetRowStates",
        },
        {
          service: "leman.v1.CommitService",
          method: "GetCommit",
        },
        {
          service: "leman.v1.CommitService",
          method: "ListCommits",
        },
        {
          service: "leman.v1.CommitService",
          method: "CollectGarbage",
        },
        {
          service: "leman.v1.CommitService",
          method: "VerifyDatabase",
        },
        {
          service: "leman.v1.CommitService",
          method: "OptimizeIndices",
        },
        {
          service: "leman.v1.DatabaseService",
          method: "GetDatabase",
        },
        {
          service: "leman.v1.DatabaseService",
          method: "ListDatabases",
        },
        {
          service: "leman.v1.DatabaseService",
          method: "UpdateDatabase",
        },
        {
          service: "leman.v1.InfoService",
          method: "GetInfo",
        },
        {
          service: "leman.v1.JobService",
          method: "GetJob",
        },
        {
          service: "leman.v1.JobService",
          method: "ListJobs",
        },
        {
          service: "leman.v1.JobService",
          method: "WatchJob",
        },
        {
          service: "leman.v1.JobService",
          method: "WaitJob",
        },
        {
          service: "leman.v1.JobService",
          method: "UpdateJob",
        },
        {
          service: "leman.v1.JobService",
          method: "CancelJob",
        },
        {
          service: "leman.v1.JobService",
          method: "PauseJob",
        },
        {
          service: "leman.v1.JobService",
          method: "ResumeJob",
        },
        {
          service: "leman.v1.JobService",
          method: "CancelJobs",
        },
        {
          service: "leman.v1.JobService",
          method: "DeleteJob",
        },
        {
          service: "leman.v1.JobService",
          method: "ListJobErrors",
        },
        {
          service: "leman.v1.JobService",
          method: "GroupJobErrors",
        },
        {
          service: "leman.v1.JobService",
          method: "PreviewFunction",
        },
        {
          service: "leman.v1.TableService",
          method: "ReadRows",
        },
      ],
      waitForReady: true,
      retryPolicy: {
        maxAttempts: 5,
        initialBackoff: "0.1s",
        maxBackoff: "2s",
        backoffMultiplier: 2,
        retryableStatusCodes: ["UNAVAILABLE", "RESOURCE_EXHAUSTED"],
      },
    },
  ],
} as const;
