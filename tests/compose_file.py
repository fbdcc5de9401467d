"""docker-compose.yml, read as compose reads it."""

from __future__ import annotations

import re
from typing import Any

import yaml

from tests.conftest import ROOT

COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, Any] = COMPOSE["services"]
TOKEN = "BJ7wq1mXf0nUeS3cGk5TzR8v"
CHOSEN = {"LEMAN_TOKEN": TOKEN, "REDIS_PASSWORD": "pa55word"}
ON_SPARK = CHOSEN | {"LEMAN_SPARK_MASTER": "spark://spark-master:7077"}
_VARIABLE = re.compile(r"\$(?:\$|\{(\w+)(?::([?-])([^}]*))?\})")


def filled_in(text: str, environ: dict[str, str]) -> str:
    """As compose does it: `${NAME}`, `${NAME:-default}`, `${NAME:?what is missing}`, `$$`."""

    def value(found: re.Match[str]) -> str:
        name, how, otherwise = found.groups()
        if name is None:
            return "$"
        if not environ.get(name) and how == "?":
            raise LookupError(otherwise)
        return environ.get(name) or (otherwise if how == "-" else "")

    return _VARIABLE.sub(value, text)


def environment(service: str, environ: dict[str, str] = CHOSEN) -> dict[str, str]:
    """What a container gets."""
    return {name: filled_in(text, environ) for name, text in SERVICES[service].get("environment", {}).items()}
