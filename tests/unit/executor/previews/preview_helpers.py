"""Previews of functions on a real table, through a real pool of function processes; no service and no Spark."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import cloudpickle
import lance
import pyarrow as pa

from leman._format.stored_functions import UdfDefinition, UdfKind
from leman.v1 import jobs_pb2
from leman_core.functions.function_definitions import PYTHON
from leman_core.model.plan import OutputField, PlanHeader
from leman_core.model.table import TableField
from leman_core.settings import Settings, Spark
from leman_executor.api.convert_jobs import preview_from_proto, preview_to_proto
from leman_executor.jobs.function_previews import PreviewPool, Previews
from leman_executor.scheduling.task_slots import Cluster
from leman_executor.spark.driver_launch import worker_variables


class Planner:
    """In place of the planner: answers with what it was given."""

    def __init__(self, header: PlanHeader) -> None:
        self.header = header

    async def plan_preview(self, _request: object) -> PlanHeader:
        return self.header


class Trial:
    """A table of rows in fragments of three, and a pool."""

    def __init__(self, folder: Path, rows: pa.Table) -> None:
        self.uri = str(folder / "t.lance")
        lance.write_dataset(rows, self.uri, max_rows_per_file=3, enable_stable_row_ids=True)
        self.pool = PreviewPool(variables=worker_variables(Spark(conf={"spark.executorEnv.MODEL": "small"})))
        self._services: Any = SimpleNamespace(
            settings=Settings(),
            slots=2,
            spark=SimpleNamespace(slots=lambda here: here),
            cluster=lambda: Cluster(local=True, cores=2, memory_bytes=1 << 30),
        )

    async def preview(
        self,
        function: Callable[..., Any] | None,
        inputs: tuple[str, ...] = ("n",),
        *,
        output: pa.DataType | None = None,
        where: str = "",
        udf: dict[str, Any] | None = None,
        **asked: Any,
    ) -> jobs_pb2.PreviewFunctionResponse:
        """Try a function; `udf`: fields of its definition."""
        bundle = b"" if function is None else cloudpickle.dumps(function)
        digest = hashlib.sha256(bundle).hexdigest() if bundle else ""
        definition = UdfDefinition(
            "f", "1", UdfKind.SCALAR, inputs, output or pa.int64(), bundle_sha256=digest, bundle_python=PYTHON
        )
        definition = replace(definition, **(udf or {}))
        header = PlanHeader(
            uri=self.uri,
            read_version=lance.dataset(self.uri).version,
            incarnation="",
            output=OutputField(TableField(pa.field("output", definition.output_type), ()), ""),
            input_columns=inputs,
            udf=definition,
            bundle_uri="",
            where=where,
            rows_to_compute=4000,
        )
        request = jobs_pb2.PreviewFunctionRequest(bundle=bundle, **asked)
        request.definition.python_bundle.sha256 = digest
        return preview_to_proto(
            await Previews(Planner(header), self._services, self.pool).run(preview_from_proto(request))
        )
