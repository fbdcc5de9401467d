"""When the finished files of a job are committed, and how many together. Pure: no I/O, no clock.

Each commit rewrites the manifest of the table, which takes 2 ms plus about 6 µs for each fragment of the table, no
matter how few fragments are committed. So a job waits nine times as long between two commits as the last manifests took
to write, which limits manifests to a tenth of its time. No file waits longer for that than `longest_seconds`.

Example: the manifest of a table of 100,000 fragments takes 0.6 s. Finished files are committed every 5.4 s, in a small
table every second. With a million fragments, 6 s for a manifest, it is every 54 s. If checking a file takes 1 ms, a
commit takes up to 10,000 files instead of 2,000, as the manifest would cost more than they do.
"""

from __future__ import annotations

#: The largest share of a job's time for manifests.
_SHARE = 0.1
_LEAST_PAUSE_SECONDS = 1.0
_MOST_FRAGMENTS = 2000
_MOST_OF_LARGE_TABLES = 10_000
#: A commit is one request: its maximum size, the bytes of a fragment, and the bytes of each file of its inputs.
_REQUEST_BYTES, _FRAGMENT_BYTES, _INPUT_BYTES = 4 << 20, 300, 60


class CommitCadence:
    """The cadence of one plan's commits.

    Args:
        granularity: Fragments of each commit, if the request says so; 0: chosen.
        planned: Fragments of the plan: a tenth of them is committed without waiting for more.
        interval_seconds: How long a finished file waits for others.
        longest_seconds: How long a file waits at most, however long manifests take.
        input_fields: Number of input fields, each of which may have a file of its own.
    """

    def __init__(
        self, *, granularity: int, planned: int, interval_seconds: float, longest_seconds: float, input_fields: int
    ) -> None:
        self._granularity = granularity
        self._tenth = max(1, planned // 10)
        self._interval = interval_seconds
        self._longest = longest_seconds
        fitting = _REQUEST_BYTES // (_FRAGMENT_BYTES + input_fields * _INPUT_BYTES)
        self._most = min(max(_MOST_FRAGMENTS, fitting), _MOST_OF_LARGE_TABLES)
        self._manifest = 0.0
        self._file = 0.0

    def answered(self, fragments: int, seconds: float, manifest_seconds: float) -> None:
        """Learn from a commit.

        Args:
            fragments: Its number of fragments.
            seconds: Its total duration.
            manifest_seconds: How long the version took to write; 0: none was written.
        """
        if manifest_seconds <= 0 or not fragments:
            return
        each = max(0.0, seconds - manifest_seconds) / fragments
        self._manifest = (self._manifest + manifest_seconds) / 2 if self._manifest else manifest_seconds
        self._file = (self._file + each) / 2 if self._file else each

    @property
    def pause_seconds(self) -> float:
        """Return the least time between the end of a commit and the next one."""
        return max(_LEAST_PAUSE_SECONDS, min(self._between, self._longest))

    @property
    def most_fragments(self) -> int:
        """Return how many fragments one commit takes at most."""
        if self._granularity:
            return self._granularity
        worth = self._between / self._file if self._file else 0
        return int(min(max(_MOST_FRAGMENTS, worth), self._most))

    @property
    def _between(self) -> float:
        """Return the seconds of other work that keep manifests within their share."""
        return self._manifest * (1 / _SHARE - 1)

    def due(self, ready: int, *, waited: float, since_last: float) -> int:
        """Return how many fragments to commit now.

        Args:
            ready: Number of finished files that wait.
            waited: How long the first of them has waited.
            since_last: Seconds since the last commit ended.
        """
        if self._granularity:
            return self._granularity if ready >= self._granularity else 0
        if not ready or since_last < self.pause_seconds:
            return 0
        if ready >= self._tenth or waited >= self._interval:
            return min(ready, self.most_fragments)
        return 0
