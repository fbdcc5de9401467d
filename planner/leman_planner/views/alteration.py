"""Function columns of a view get other functions: what is checked, and what the view's metadata then says."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace

from leman_core.functions import validation
from leman_core.model.errors import FailedPrecondition, InvalidArgument
from leman_core.model.table import TableSnapshot
from leman_core.model.udf import UdfDefinition, UdfKind
from leman_core.model.view import ViewDefinition, ViewFunction
from leman_core.model.view_metadata import with_alteration, with_query
from leman_core.storage.udf_registry import UdfRegistry
from leman_planner.views.query_resolution import inputs_of

_KEEP_TYPE = "A column of a view keeps its type: make another view, or cast the function's result"


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewChange:
    """What the commit coordinator is to write into a view's metadata, on top of a version."""

    uri: str
    incarnation: str
    version: int
    request_id: str
    #: Empty: there is nothing to write.
    metadata: dict[str, str]


def alter(
    view: TableSnapshot,
    definition: ViewDefinition,
    functions: Sequence[ViewFunction],
    registry: UdfRegistry,
    source: TableSnapshot,
    *,
    has_values: bool,
    request_id: str,
    body: str,
) -> ViewChange:
    """Check the new functions of a view's columns and return what its metadata is to say.

    Args:
        functions: of columns that the view has, by name; without inputs, those of the column or of the function.
        source: its latest version.
        has_values: whether any row of the view has been filled.
        body: tells the request from another one under the same id.

    Raises:
        LemanError: what `CatalogService.AlterMaterializedView` (protos/leman/v1/catalog.proto) names.
    """
    names = [function.name for function in functions]
    if not names or len(set(names)) < len(names):
        raise InvalidArgument("BAD_REQUEST", f"name each column once: {', '.join(names)}", field="functions")
    changed = definition
    for function in functions:
        changed = _altered(view, changed, function, registry, source)
    if not has_values:
        changed = replace(changed, filled=filled_by(changed.query.functions))
    metadata = with_query(changed) if changed != definition else {}
    if metadata and request_id:
        metadata |= with_alteration(view.metadata, request_id, body)
    return ViewChange(
        uri=view.uri,
        incarnation=view.incarnation,
        version=view.version,
        request_id=request_id or uuid.uuid4().hex,
        metadata=metadata,
    )


def filled_by(functions: Sequence[ViewFunction]) -> dict[str, str]:
    """Return what `ViewDefinition.filled` says where these functions computed their columns."""
    return {function.name: f"{function.udf_name}@{function.udf_version}" for function in functions}


def _altered(
    view: TableSnapshot, definition: ViewDefinition, wanted: ViewFunction, registry: UdfRegistry, source: TableSnapshot
) -> ViewDefinition:
    before = next((f for f in definition.query.functions if f.name == wanted.name), None)
    own = view.column(wanted.name)
    if before is None or own is None:
        raise FailedPrecondition(
            "COLUMN_NOT_DEFINED",
            f"Column {wanted.name} is not defined in this table: no function of the view's query computes it",
            column=wanted.name,
        )
    udf = _function(wanted, registry)
    inputs = wanted.inputs or _kept(before, udf, registry)
    after = ViewFunction(wanted.name, udf.name, udf.version, inputs)
    after = replace(after, inputs=inputs_of(after, udf, source))
    validation.check_output_type(own, udf, _KEEP_TYPE)
    functions = tuple(after if f.name == wanted.name else f for f in definition.query.functions)
    filled = definition.filled
    if after.inputs != before.inputs:  # what filled it is known by name and version only
        filled = {name: by for name, by in filled.items() if name != wanted.name}
    return replace(definition, query=replace(definition.query, functions=functions), filled=filled)


def _function(wanted: ViewFunction, registry: UdfRegistry) -> UdfDefinition:
    udf = registry.usable(wanted.udf_name, wanted.udf_version)
    if udf.kind is UdfKind.SQL:
        raise InvalidArgument(
            "BAD_REQUEST",
            f"column {wanted.name}: function {udf.name} is SQL, which is part of a view's query. Make another view",
            field="functions.udf",
        )
    return udf


def _kept(before: ViewFunction, udf: UdfDefinition, registry: UdfRegistry) -> tuple[str, ...]:
    """Return the column's inputs where they hold for the new function, which has the same parameter names.

    Empty: the inputs are as the function names them.
    """
    own = registry.find_expected(before.udf_name, before.udf_version)
    return before.inputs if own is not None and own.input_columns == udf.input_columns else ()
