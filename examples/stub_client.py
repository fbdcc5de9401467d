"""Backfills through the generated gRPC stubs, without the SDK: what a caller in any language does.

Prints:
    STATE_DONE 3
"""

import json
import sys
from pathlib import Path

import grpc

import leman
from leman.v1 import jobs_pb2, jobs_pb2_grpc, planner_pb2
from leman.v1.catalog_pb2 import TableRef

with leman.connect(sys.argv[1]) as db:  # only to have a table, and services: others have an address and a token
    table = db.create_table("plain", {"x": [1, 2, 3]}, mode="overwrite")
    table.add_columns({"y": "x + 1"})
service = json.loads(Path(sys.argv[1], "_leman", "service.json").read_text())
metadata = (("authorization", f"Bearer {service['token']}"),)
database = db.uri

with grpc.insecure_channel(service["executor"]) as channel:
    jobs = jobs_pb2_grpc.JobServiceStub(channel)
    spec = planner_pb2.BackfillSpec(table=TableRef(database=database, table="plain"), column="y")
    job = jobs.CreateJob(jobs_pb2.CreateJobRequest(backfill=spec), metadata=metadata).job
    for message in jobs.WatchJob(jobs_pb2.WatchJobRequest(database=database, job_id=job.job_id), metadata=metadata):
        job = message.job
    print(jobs_pb2.Job.State.Name(job.state), job.progress.rows_committed)
