"""Settings of the services: one typed object, read from the environment.

Every setting is `LEMAN_<SECTION>__<KEY>`, for example `LEMAN_SERVER__HOST` or `LEMAN_WRITER__STALL_IDLE_CHECKS=6`. An
unknown name of this form is refused, so that a misspelt setting does not go unnoticed. `python -m leman_core.settings`
lists all settings with value, origin and meaning; secrets are masked.
"""

from leman_core.settings.loading import PREFIX, SettingInfo, Settings, describe, is_secret, load
from leman_core.settings.sections import (
    Advertise,
    Commit,
    Embedded,
    Executor,
    Grant,
    Jwt,
    Lineage,
    Log,
    Metrics,
    Peers,
    Redis,
    Section,
    Server,
    Spark,
    Storage,
    Token,
    Udf,
    Writer,
)

__all__ = [
    "PREFIX",
    "Advertise",
    "Commit",
    "Embedded",
    "Executor",
    "Grant",
    "Jwt",
    "Lineage",
    "Log",
    "Metrics",
    "Peers",
    "Redis",
    "Section",
    "Server",
    "SettingInfo",
    "Settings",
    "Spark",
    "Storage",
    "Token",
    "Udf",
    "Writer",
    "describe",
    "is_secret",
    "load",
]
