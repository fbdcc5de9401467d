"""Environment variables of a job: who may give them, which functions have them, and how a job ends that lost them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from leman_core.functions.function_policy import FunctionPolicy
from leman_core.model.errors import FailedPrecondition, PermissionDenied
from leman_core.model.job import JobError
from leman_core.model.udf import FunctionVersion, UdfDefinition, UdfKind
from leman_core.server.auth.requirements import check_code

NO_ENV: Mapping[str, str] = MappingProxyType({})
#: Most notices that are remembered.
_NOTICES = 1024
#: Kinds of functions that run in a process of their own.
KINDS_WITH_ENV = frozenset(UdfKind) - {UdfKind.SQL, UdfKind.REMOTE}


def check_usable(env: Mapping[str, str], functions: Iterable[UdfDefinition]) -> None:
    """Check that a function has an environment that variables can be set in, where some are given.

    Raises:
        FailedPrecondition: ENV_NOT_USABLE.
    """
    if not env or any(udf.kind in KINDS_WITH_ENV for udf in functions):
        return
    raise FailedPrecondition(
        "ENV_NOT_USABLE",
        "Nothing here has an environment of the job's: SQL runs in the services, and remote functions on their own "
        "servers. Leave env out, and give a remote function's server what it needs",
        field="env",
    )


def check_unchanged(
    env: Mapping[str, str], before: Mapping[str, FunctionVersion], now: Mapping[str, FunctionVersion]
) -> None:
    """Check that values are given to no other functions than those of which a job was made, by column.

    Raises:
        PermissionDenied: ENV_NOT_ALLOWED.
    """
    for column, function in now.items():
        if env and before.get(column) != function:
            had = f"had {before[column]}" if column in before else "was not there"
            listed = ", ".join(sorted(env))
            raise PermissionDenied(
                "ENV_NOT_ALLOWED",
                f"Column {column} {had} when the job was given environment variables ({listed}), and has {function} "
                "now, which is given none. What was finished is kept; run it again with env if that one may have them",
                column=column,
                env_names=listed,
            )


def check_may_set(env: Mapping[str, str], policy: FunctionPolicy) -> None:
    """Check that the caller may give functions these variables.

    Raises:
        PermissionDenied: ENV_NOT_ALLOWED; ROLE_REQUIRED, where nothing says which ones there may be.
    """
    if env and not policy.env_names:
        check_code("Giving functions environment variables")
    policy.check_env(env)


class EnvNotices:
    """Which notices about variables that do not outlive the services were given: one for each database and set of
    names is enough."""

    def __init__(self) -> None:
        self._given: set[tuple[str, tuple[str, ...]]] = set()

    def next(self, database: str, names: Iterable[str]) -> str:
        """Return the notice for a job that begins; empty where an earlier job had the same one."""
        asked = database, tuple(sorted(names))
        if asked in self._given:
            return ""
        if len(self._given) >= _NOTICES:
            self._given.clear()
        self._given.add(asked)
        return f"{', '.join(asked[1])} kept in memory only: if all services stop, run the job again with env"


def env_lost(job_id: str, names: Iterable[str], stored: int) -> JobError:
    """Return why a job fails whose variables have no values any more.

    Args:
        stored: How many of its rows are stored.
    """
    listed = ", ".join(names)
    message = (
        f"The executor that ran this job is gone, and with it the values of its environment variables ({listed}): they "
        f"are in memory alone. What was finished is kept ({stored:,} rows); run it again with env. "
        "LEMAN_EXECUTOR__ENV_FOLDER keeps such values over a restart."
    )
    facts = {"job_id": job_id, "env_names": listed}
    return JobError(kind="FailedPrecondition", reason="ENV_LOST", message=message, facts=facts)
