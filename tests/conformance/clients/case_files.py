"""The files of cases, read."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

FOLDER = Path(__file__).resolve().parent.parent / "cases"
#: What a step says in addition to what it does.
OPTIONS = ("as", "database", "error", "eventually", "expect", "rows", "save", "timeout")
#: What the harness does by itself.
OWN = ("away", "calls", "damage", "fault", "forget", "kill", "lance")
#: What runners do: tests/conformance/cases/README.md.
OPERATIONS = (
    *("rpc", "tables", "create_table", "drop_table", "rename_table", "describe", "append", "read", "delete"),
    *("update", "merge"),
    *("add_columns", "alter_columns", "drop_columns", "rename_column", "functions", "register_function"),
    *("upload_bundle", "create_view", "views", "drop_view", "plan", "backfill", "refresh", "jobs", "job", "watch"),
    *("wait", "cancel", "pause", "resume", "errors", "preview"),
)


@dataclass(frozen=True)
class Step:
    """One step of a case: what is done, with what, and what is said beside."""

    do: str
    given: Any
    options: dict[str, Any]


@dataclass(frozen=True)
class Case:
    """A case. `id`: `<file>/<name>`."""

    id: str
    about: str
    steps: tuple[Step, ...]
    data: dict[str, Any] = field(default_factory=dict)
    connections: dict[str, Any] = field(default_factory=dict)

    @property
    def suite(self) -> str:
        """The file that it stands in."""
        return self.id.partition("/")[0]

    @property
    def kills(self) -> bool:
        """A service dies in it, as others who call at that time would see."""
        return any(step.do == "kill" or (step.do == "fault" and step.given["kind"] == "kill") for step in self.steps)


def load() -> dict[str, Case]:
    """All cases, by id, in the order of files and lines. Raises ValueError for what is none."""
    found: dict[str, Case] = {}
    for path in sorted(FOLDER.glob("*.yaml")):
        content = yaml.load(path.read_text(), yaml.CSafeLoader)
        for item in content["cases"]:
            case = _case(path.stem, content.get("data", {}), item)
            if case.id in found:
                raise ValueError(f"{case.id} stands there twice")
            found[case.id] = case
    return found


def _case(suite: str, shared: dict[str, Any], item: dict[str, Any]) -> Case:
    unknown = item.keys() - {"id", "about", "steps", "data", "connections"}
    if unknown:
        raise ValueError(f"{suite}/{item.get('id')}: {sorted(unknown)} mean nothing")
    name = f"{suite}/{item['id']}"
    steps = tuple(_step(name, step) for step in item["steps"])
    return Case(name, item["about"], steps, shared | item.get("data", {}), item.get("connections", {}))


def _step(case: str, item: dict[str, Any]) -> Step:
    told = {key: value for key, value in item.items() if key in OPTIONS}
    done = [key for key in item if key not in OPTIONS]
    if len(done) != 1 or done[0] not in (*OPERATIONS, *OWN):
        raise ValueError(f"{case}: a step does one thing that is known, not {done}")
    return Step(done[0], item[done[0]] or {}, told)
