"""The Lance side of commits: what is installed in a table, and what lies beside it."""

import leman_core.storage  # noqa: F401 - it says how much Lance logs, which has to be before Lance is imported
