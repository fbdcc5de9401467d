"""Reservations of row ranges, so that two jobs do not compute the same rows.

Reservations save work; correctness does not depend on them. If a holder pauses for longer than a reservation lives, two
holders may have the same range. Each holder then writes its own files, and the coordinator decides which files to
commit. The reservations of a dead holder expire.

A holder is an attempt at a job, `job#attempt`. Its workers immediately take over the reservations of dead workers of
the same attempt, and those of earlier attempts. A worker of an earlier attempt notices this at its next renewal.

An expiry time in Redis does not prove that the holder is alive: Redis's clock may be set back, and another program may
have written the key. A job that waits for a reservation therefore watches for renewals. If there are none for a few
lifetimes, the job ignores the reservation.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence

from leman_core.model.row_positions import RowRange, subtract_ranges
from leman_core.model.work import Grant, Reservations
from leman_executor.coordination.redis_clients import Breaker, connect

_PREFIX = "leman:reservation:"
_FINISHED_FOR_SECONDS = 3600

# Split a holder into job and attempt.
_HOLDER = """
local function holder_of(text)
  local job, attempt = string.match(text, '^(.*)#(%d+)$')
  if job then return job, tonumber(attempt) end
  return text, 0
end
"""

# KEYS: ranges hash, finished set (of holders). ARGV: holder, ttl in ms, number of ignored holds, the ignored holds,
# then start and end of each wanted range. The hash maps "start-end-holder" → expiry in ms; a hold is the text
# "field=expiry". Fields with another format are ignored. Returns {others_finished, overtaken, {now-busy "start-end",
# ...}, {hold, ...}}.
_RESERVE = (
    _HOLDER
    + """
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local holder, ttl = ARGV[1], tonumber(ARGV[2])
local job, attempt = holder_of(holder)
local ignored = {}
for i = 4, 3 + tonumber(ARGV[3]) do ignored[ARGV[i]] = true end
local taken, overtaken = {}, 0
local held = redis.call('HGETALL', KEYS[1])
for i = 1, #held, 2 do
  local s, e, h = string.match(held[i], '^(%d+)-(%d+)-(.*)$')
  local expiry, hold = tonumber(held[i + 1]), held[i] .. '=' .. held[i + 1]
  if s and expiry then
    local j, a = holder_of(h)
    if expiry < now or ignored[hold] or (j == job and a < attempt) then
      redis.call('HDEL', KEYS[1], held[i])
    elseif h ~= holder then
      if j == job then overtaken = 1 end
      taken[#taken + 1] = {tonumber(s), tonumber(e), hold}
    end
  end
end
table.sort(taken, function(a, b) return a[1] < b[1] end)
local others = 0
for _, h in ipairs(redis.call('SMEMBERS', KEYS[2])) do
  if h ~= holder then others = 1 end
end
local busy, holds = {}, {}
for i = 4 + tonumber(ARGV[3]), #ARGV, 2 do
  local at, stop = tonumber(ARGV[i]), tonumber(ARGV[i + 1])
  for _, r in ipairs(taken) do
    if r[2] > at and r[1] < stop then
      if r[1] > at then
        redis.call('HSET', KEYS[1], at .. '-' .. r[1] .. '-' .. holder, now + ttl)
      end
      busy[#busy + 1] = math.max(at, r[1]) .. '-' .. math.min(stop, r[2])
      holds[#holds + 1] = r[3]
      at = math.max(at, r[2])
    end
  end
  if at < stop then
    redis.call('HSET', KEYS[1], at .. '-' .. stop .. '-' .. holder, now + ttl)
  end
end
redis.call('PEXPIRE', KEYS[1], ttl * 10)
return {others, overtaken, busy, holds}
"""
)

# KEYS: ranges hash. ARGV: holder, time to live in ms. Returns 1 if no later attempt at the job holds anything, else 0.
_RENEW = (
    _HOLDER
    + """
local t = redis.call('TIME')
local now = t[1] * 1000 + math.floor(t[2] / 1000)
local job, attempt = holder_of(ARGV[1])
local ours = 1
for _, f in ipairs(redis.call('HKEYS', KEYS[1])) do
  local h = string.match(f, '^%d+-%d+-(.*)$')
  if h == ARGV[1] then
    redis.call('HSET', KEYS[1], f, now + tonumber(ARGV[2]))
  elseif h then
    local j, a = holder_of(h)
    if j == job and a > attempt then ours = 0 end
  end
end
redis.call('PEXPIRE', KEYS[1], tonumber(ARGV[2]) * 10)
return ours
"""
)

# KEYS: ranges hash, finished set. ARGV: holder, seconds to keep the mark in the finished set (0: no mark), then
# "start-end" of each range.
_RELEASE = """
if tonumber(ARGV[2]) > 0 then
  redis.call('SADD', KEYS[2], ARGV[1])
  redis.call('EXPIRE', KEYS[2], tonumber(ARGV[2]))
end
for i = 3, #ARGV do
  redis.call('HDEL', KEYS[1], ARGV[i] .. '-' .. ARGV[1])
end
return 1
"""

# KEYS: ranges hash. ARGV: holder.
_RELEASE_ALL = """
for _, f in ipairs(redis.call('HKEYS', KEYS[1])) do
  if string.match(f, '^%d+-%d+-(.*)$') == ARGV[1] then redis.call('HDEL', KEYS[1], f) end
end
return 1
"""


class GrantAll:
    """Grant every range, without Redis. Jobs then do not share work."""

    def reserve(
        self,
        scope: str,  # noqa: ARG002 the interface
        wanted: Sequence[RowRange],
        holder: str,  # noqa: ARG002
        ignored: Collection[str] = (),  # noqa: ARG002
    ) -> Grant:
        return Grant(granted=tuple(wanted), busy=(), others_finished=True)

    def renew(self, scopes: Iterable[str], holder: str) -> bool:  # noqa: ARG002
        """Return True, as no reservations exist."""
        return True

    def release(self, scope: str, ranges: Sequence[RowRange], holder: str, *, finished: bool) -> None:
        """Do nothing, as no reservations exist."""

    def release_all(self, scopes: Iterable[str], holder: str) -> None:
        """Do nothing, as no reservations exist."""


class RedisReservations:
    """Reservations of all workers that use the same Redis. While Redis is unreachable, every range is granted."""

    def __init__(self, url: str, ttl_seconds: float, timeout_seconds: float = 0.25) -> None:
        client = connect(url, timeout_seconds)
        self._ttl_ms = int(ttl_seconds * 1000)
        self._reserve = client.register_script(_RESERVE)
        self._renew = client.register_script(_RENEW)
        self._release = client.register_script(_RELEASE)
        self._release_all = client.register_script(_RELEASE_ALL)
        self._breaker = Breaker()

    def reserve(self, scope: str, wanted: Sequence[RowRange], holder: str, ignored: Collection[str] = ()) -> Grant:
        def ask() -> Grant:
            bounds = [n for r in wanted for n in r]
            args: list[str | int] = [holder, self._ttl_ms, len(ignored), *ignored, *bounds]
            others, overtaken, texts, holds = self._reserve(keys=_keys(scope), args=args)
            busy = tuple(RowRange(*map(int, text.split(b"-"))) for text in texts)
            known = tuple(dict.fromkeys(hold.decode(errors="replace") for hold in holds))
            return Grant(
                granted=tuple(subtract_ranges(wanted, busy)),
                busy=busy,
                others_finished=bool(others),
                holds=known,
                overtaken=bool(overtaken),
            )

        return self._breaker.call(ask, lambda: GrantAll().reserve(scope, wanted, holder))

    def renew(self, scopes: Iterable[str], holder: str) -> bool:
        def ask() -> bool:
            kept = [self._renew(keys=_keys(scope)[:1], args=[holder, self._ttl_ms]) for scope in scopes]
            return all(kept)

        return self._breaker.call(ask, lambda: True)

    def release(self, scope: str, ranges: Sequence[RowRange], holder: str, *, finished: bool) -> None:
        def ask() -> None:
            fields = [f"{r.start}-{r.end}" for r in ranges]
            self._release(keys=_keys(scope), args=[holder, _FINISHED_FOR_SECONDS if finished else 0, *fields])

        self._breaker.call(ask, lambda: None)

    def check(self) -> None:
        """Reserve and release a row that no table has, to check access.

        Raises:
            RedisError: Redis is unreachable, or its user does not have the right.
        """
        keys, holder = _keys("check"), "check#1"
        self._reserve(keys=keys, args=[holder, self._ttl_ms, 0, 0, 1])
        self._renew(keys=keys[:1], args=[holder, self._ttl_ms])
        self._release(keys=keys, args=[holder, 1, "0-1"])
        self._release_all(keys=keys[:1], args=[holder])

    def release_all(self, scopes: Iterable[str], holder: str) -> None:
        def ask() -> None:
            for scope in scopes:
                self._release_all(keys=_keys(scope)[:1], args=[holder])

        self._breaker.call(ask, lambda: None)


@functools.lru_cache(maxsize=4)
def reservations_at(url: str, ttl_seconds: float) -> Reservations:
    """Return the reservations in a Redis, as one object for all callers in a process.

    The connection and the circuit breaker are therefore kept between jobs. Without a URL, every range is granted.
    """
    return RedisReservations(url, ttl_seconds) if url else GrantAll()


def _keys(scope: str) -> list[str]:
    return [f"{_PREFIX}{scope}", f"{_PREFIX}{scope}:finished"]


def _hold(rows: RowRange, holder: str, expiry: float) -> str:
    return f"{rows.start}-{rows.end}-{holder}={expiry}"


def _later(one: str, other: str) -> bool:
    """Return whether `one` is a later attempt at the same job as `other`."""
    (job, _, attempt), (other_job, _, other_attempt) = one.rpartition("#"), other.rpartition("#")
    return bool(job) and job == other_job and int(attempt) > int(other_attempt)


class InProcessReservations:
    """Reservations within one process. The conformance suite checks that they behave like those in Redis."""

    def __init__(self, ttl_seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._ttl = ttl_seconds
        self._clock = clock
        self._lock = threading.Lock()
        self._held: dict[str, list[tuple[RowRange, str, float]]] = {}
        self._finished: dict[str, set[str]] = {}

    def reserve(self, scope: str, wanted: Sequence[RowRange], holder: str, ignored: Collection[str] = ()) -> Grant:
        with self._lock:
            now = self._clock()
            gone = [h for h in self._held.get(scope, []) if h[2] < now or _hold(*h) in ignored or _later(holder, h[1])]
            held = [h for h in self._held.get(scope, []) if h not in gone]
            taken = [h for h in held if h[1] != holder]
            granted = subtract_ranges(wanted, [r for r, _, _ in taken])
            busy = subtract_ranges(wanted, granted)
            held.extend((r, holder, now + self._ttl) for r in granted)
            self._held[scope] = held
            others = bool(self._finished.get(scope, set()) - {holder})
            holds = tuple(_hold(*h) for h in taken if any(h[0].intersect(r) for r in busy))
            return Grant(
                granted=tuple(granted),
                busy=tuple(busy),
                others_finished=others,
                holds=holds,
                overtaken=any(_later(h[1], holder) for h in taken),
            )

    def renew(self, scopes: Iterable[str], holder: str) -> bool:
        with self._lock:
            until, ours = self._clock() + self._ttl, True
            for scope in scopes:
                held = self._held.get(scope, [])
                ours = ours and not any(_later(owner, holder) for _, owner, _ in held)
                self._held[scope] = [(r, owner, until if owner == holder else end) for r, owner, end in held]
            return ours

    def release(self, scope: str, ranges: Sequence[RowRange], holder: str, *, finished: bool) -> None:
        with self._lock:
            given = set(ranges)
            self._held[scope] = [h for h in self._held.get(scope, []) if h[1] != holder or h[0] not in given]
            if finished:
                self._finished.setdefault(scope, set()).add(holder)

    def release_all(self, scopes: Iterable[str], holder: str) -> None:
        with self._lock:
            for scope in scopes:
                self._held[scope] = [h for h in self._held.get(scope, []) if h[1] != holder]
