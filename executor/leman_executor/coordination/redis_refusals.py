"""A Redis that is there and refuses this executor: its url is wrong, which is no reason to go on without it.

While Redis is away nobody has its leases, and work is done twice at the worst. Where it only refuses this executor,
others have theirs.
"""

from __future__ import annotations

from redis.exceptions import AuthenticationError, AuthorizationError, NoPermissionError, RedisError

from leman_core.model.errors import InvalidArgument
from leman_executor.coordination.redis_clients import connect
from leman_executor.coordination.reservations import RedisReservations

#: What Redis says to a wrong or missing password, and to a user who may not do this.
_REFUSALS = (AuthenticationError, AuthorizationError, NoPermissionError)
_TIMEOUT_SECONDS = 2.0


def is_refusal(error: Exception) -> bool:
    """Tell whether Redis is there, and refuses who asks."""
    return isinstance(error, _REFUSALS) or isinstance(error.__cause__, _REFUSALS)  # asyncio's client wraps them


def check_accepted(url: str) -> None:
    """Refuse an url that Redis refuses. One that is away says nothing: it may be there later.

    Args:
        url: empty: there is no Redis.

    Raises:
        InvalidArgument: BAD_SETTING.
    """
    if not url:
        return
    try:
        with connect(url, _TIMEOUT_SECONDS) as client:
            client.ping()
    except (RedisError, OSError) as error:
        if is_refusal(error):
            raise InvalidArgument(
                "BAD_SETTING",
                f"LEMAN_REDIS__URL: Redis refuses its user or password ({error}): give those that it knows",
            ) from None


def check_workers_accepted(url: str) -> None:
    """Refuse the workers' url where Redis refuses it, or its user may not reserve rows: workers would share no work.

    Args:
        url: empty: workers have that of the executor.

    Raises:
        InvalidArgument: BAD_SETTING.
    """
    if not url:
        return
    try:
        RedisReservations(url, _TIMEOUT_SECONDS, _TIMEOUT_SECONDS).check()
    except (RedisError, OSError) as error:
        if is_refusal(error) or "permission" in str(error):
            raise InvalidArgument(
                "BAD_SETTING",
                f"LEMAN_REDIS__WORKERS_URL: Redis does not let its user reserve rows ({error}); docs/security.md has "
                "the rights that it needs",
            ) from None
