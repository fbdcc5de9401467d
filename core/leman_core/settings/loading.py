"""Load the settings from the environment, and describe them."""

from __future__ import annotations

import functools
import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Self

from pydantic import BaseModel, SecretStr, ValidationError, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict, SettingsError

from leman_core.model.service_errors import InvalidArgument
from leman_core.settings.sections import (
    NO_LIST,
    Advertise,
    Commit,
    Embedded,
    Executor,
    Jwt,
    Lineage,
    Log,
    Metrics,
    Peers,
    Redis,
    Server,
    Spark,
    Storage,
    Udf,
    Writer,
)

PREFIX = "LEMAN_"
#: Variables of `docker-compose.yml` that look like settings.
_READ_ELSEWHERE = frozenset({"LEMAN_SPARK_MASTER"})
#: Pydantic's error types for values that should be an object or a list.
_NOT_OF_ITS_KIND = frozenset({"dict_type", "tuple_type"})
_MASK = "**********"
_SECRET_NAME = re.compile(r"secret|password|token|credential|(?:access|account|api)[._-]?key", re.IGNORECASE)


class Settings(BaseSettings):
    """All settings. Build it with `load()`; `Settings()` raises pydantic's own errors."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX,
        env_nested_delimiter="__",
        frozen=True,
        extra="forbid",
        hide_input_in_errors=True,
    )

    server: Server = Server()
    jwt: Jwt = Jwt()
    udf: Udf = Udf()
    peers: Peers = Peers()
    advertise: Advertise = Advertise()
    redis: Redis = Redis()
    storage: Storage = Storage()
    spark: Spark = Spark()
    executor: Executor = Executor()
    writer: Writer = Writer()
    commit: Commit = Commit()
    embedded: Embedded = Embedded()
    log: Log = Log()
    metrics: Metrics = Metrics()
    lineage: Lineage = Lineage()

    @model_validator(mode="after")
    def _ports_apart(self) -> Self:
        """Refuse the same port for two listeners of a process."""
        callback = self.spark.callback_port
        asked = [
            ("server.port", self.server.port),
            ("server.mtls_port", self.server.mtls_port),
            ("server.http_port", self.server.http_port),
            ("metrics.port", self.metrics.port),
            *(("spark.callback_port", callback + further) for further in (range(3) if callback else ())),
        ]
        taken: dict[int, str] = {}
        for key, port in asked:
            name = _env_name(tuple(key.split(".")))
            if port > 0 and port in taken:
                what = "the first of three free ports" if key == "spark.callback_port" else "another port"
                raise ValueError(f"{name}: {port} is {taken[port]} already; choose {what}")
            taken[port] = name
        return self


@dataclass(frozen=True, slots=True)
class SettingInfo:
    """One setting as `leman config show` prints it. Secrets are masked."""

    key: str
    env: str
    value: object
    #: `default` or `env`.
    origin: str
    description: str


def load() -> Settings:
    """Read the settings from the environment.

    Raises:
        InvalidArgument: BAD_SETTING; the message names every wrong variable.
    """
    unknown = _unknown(os.environ)
    if unknown:
        raise InvalidArgument("BAD_SETTING", f"unknown setting {', '.join(unknown)}; `leman config show` lists all")
    try:
        return Settings()
    except ValidationError as error:
        wrong = "; ".join(_wrong(e["loc"], e["msg"], e["type"]) for e in error.errors(include_input=False))
        raise InvalidArgument("BAD_SETTING", wrong) from None
    except SettingsError as error:  # its message does not name the variable, but has no value either
        raise InvalidArgument("BAD_SETTING", "; ".join(_no_json(os.environ)) or str(error)) from None


def describe(settings: Settings) -> Iterator[SettingInfo]:
    """Yield every setting, section by section."""
    for section_name in type(settings).model_fields:
        section: BaseModel = getattr(settings, section_name)
        for name, field in type(section).model_fields.items():
            value = getattr(section, name)
            yield SettingInfo(
                key=f"{section_name}.{name}",
                env=_env_name((section_name, name)),
                value=_shown(value),
                origin="env" if name in section.model_fields_set else "default",
                description=" ".join((field.description or "").split()),
            )


def is_secret(key: str) -> bool:
    """Return whether the name of a Spark setting says that it holds a secret."""
    return bool(_SECRET_NAME.search(key))


def _shown(value: object) -> object:
    """Return a value with its secrets masked."""
    if isinstance(value, SecretStr):
        return _MASK if value.get_secret_value() else ""
    if isinstance(value, dict):
        return {key: _MASK if is_secret(key) else text for key, text in value.items()}
    return value


def _env_name(location: tuple[int | str, ...]) -> str:
    return PREFIX + "__".join(str(part).upper() for part in location[:2])


def _wrong(location: tuple[int | str, ...], said: str, kind: str) -> str:
    """Return what is wrong, with the setting and the place in its JSON; errors about several settings name them."""
    said = said.removeprefix("Value error, ")
    if not location:
        return said
    name, inside = _env_name(location), location[2:]
    if not inside and (kind in _NOT_OF_ITS_KIND or said == NO_LIST) and name in _examples():
        return _needs_form(name)
    where = "".join(f"{_place(part)}: " for part in inside)
    return f"{name}: {where}{said}{', in double quotes' if inside and kind == 'string_type' else ''}"


def _place(part: int | str) -> str:
    """Return a key, or the position in a list."""
    return part if isinstance(part, str) else f"item {part + 1}"


def _needs_form(name: str) -> str:
    """Return the error of a setting that has to be an object or a list."""
    example = _examples()[name]
    if isinstance(example, list):
        return f"{name}: {NO_LIST}, such as '{','.join(example)}' or '{json.dumps(example)}'"
    return f"{name}: this takes JSON, such as '{json.dumps(example)}'"


@functools.cache
def _examples() -> Mapping[str, Any]:
    """Return an example for each setting that is an object or a list."""
    return {
        _env_name((section, name)): own.examples[0]
        for section, field in Settings.model_fields.items()
        for name, own in getattr(field.annotation, "model_fields", {}).items()
        if own.examples
    }


def _unknown(environ: Mapping[str, str]) -> list[str]:
    """Return unknown variables that look like settings, which pydantic-settings would ignore silently.

    Such a variable has two underscores in a row, or begins with the name of a section, like `LEMAN_SERVER_TOKEN`.
    """
    known = {
        _env_name((section, name))
        for section, field in Settings.model_fields.items()
        for name in getattr(field.annotation, "model_fields", {})
    }
    sections = tuple(f"{_env_name((section,))}_" for section in Settings.model_fields)
    ours = (name for name in environ if name.upper().startswith(PREFIX) and name.upper() not in _READ_ELSEWHERE)
    return sorted(n for n in ours if ("__" in n or n.upper().startswith(sections)) and n.upper() not in known)


def _no_json(environ: Mapping[str, str]) -> list[str]:
    """Return what is wrong with variables of an object or a whole section that are no JSON."""
    sections = {_env_name((name,)) for name in Settings.model_fields}
    wrong = sorted(name for name, text in environ.items() if not _is_json(text))
    objects = [_needs_form(name.upper()) for name in wrong if isinstance(_examples().get(name.upper()), dict)]
    whole = [name for name in wrong if name.upper() in sections]
    text = "that is a whole section: unset it, and set single settings of it, see `leman config show`"
    return objects + ([f"{', '.join(whole)}: {text}"] if whole else [])


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True
