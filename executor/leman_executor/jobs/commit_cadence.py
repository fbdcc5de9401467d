"""Decide when the finished files of a job are committed, and how many together. Pure: no I/O, no clock.

Each commit rewrites the manifest of the table. That takes 2 ms plus about 6 µs for each fragment of the table, no
matter how many fragments are committed. A job may spend at most a tenth of its time on manifests. After each commit, it
therefore waits nine times as long as writing a manifest recently took. No file waits longer than `longest_seconds` for
this reason.

Example: in a table of 100,000 fragments, writing the manifest takes 0.6 s, so finished files are committed every 5.4 s.
With a million fragments (6 s), they are committed every 54 s, and in a small table every second. A commit has at most
2,000 files, or more if checking 2,000 files takes less time than the pause. With a million fragments and 1 ms to check
a file, a commit has up to 10,000 files.
"""

from __future__ import annotations

#: The largest share of a job's time that writing manifests may take.
_SHARE = 0.1
_LEAST_PAUSE_SECONDS = 1.0
_MOST_FRAGMENTS = 2000
_MOST_OF_LARGE_TABLES = 10_000
#: Assumed sizes, with which a commit fits into one request: of the whole request, of each fragment in it, and of each
#: input file of a fragment.
_REQUEST_BYTES, _FRAGMENT_BYTES, _INPUT_BYTES = 4 << 20, 300, 60


class CommitCadence:
    """The cadence of one plan's commits.

    Args:
        granularity: Number of fragments of each commit, if the request sets it; 0 leaves the choice to this class.
        planned: Number of fragments in the plan. Once a tenth of them is finished, they are committed without waiting
            for more.
        interval_seconds: How long a finished file waits for other files to be committed with it.
        longest_seconds: Upper limit of the wait between commits, which grows with the size of the manifest.
        input_fields: Number of input fields. Each may be stored in a file of its own.
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
        """Adapt the cadence to the measured duration of a commit.

        Args:
            fragments: The number of fragments in the commit.
            seconds: The total duration of the commit.
            manifest_seconds: How long it took to write the manifest; 0 if none was written.
        """
        if manifest_seconds <= 0 or not fragments:
            return
        each = max(0.0, seconds - manifest_seconds) / fragments
        self._manifest = (self._manifest + manifest_seconds) / 2 if self._manifest else manifest_seconds
        self._file = (self._file + each) / 2 if self._file else each

    @property
    def pause_seconds(self) -> float:
        """Return the minimum number of seconds between the end of one commit and the beginning of the next."""
        return max(_LEAST_PAUSE_SECONDS, min(self._between, self._longest))

    @property
    def most_fragments(self) -> int:
        """Return the maximum number of fragments in one commit."""
        if self._granularity:
            return self._granularity
        worth = self._between / self._file if self._file else 0
        return int(min(max(_MOST_FRAGMENTS, worth), self._most))

    @property
    def _between(self) -> float:
        """Return the seconds between two commits that keep the time for manifests within its share."""
        return self._manifest * (1 / _SHARE - 1)

    def due(self, ready: int, *, waited: float, since_last: float) -> int:
        """Return the number of fragments to commit now.

        Args:
            ready: Number of finished files that are not committed yet.
            waited: Seconds that the first of these files has waited.
            since_last: Seconds since the last commit ended.
        """
        if self._granularity:
            return self._granularity if ready >= self._granularity else 0
        if not ready or since_last < self.pause_seconds:
            return 0
        if ready >= self._tenth or waited >= self._interval:
            return min(ready, self.most_fragments)
        return 0
