"""Lance operations for commits: files that are installed in a table, and notes kept next to it."""

import leman_core.storage  # noqa: F401 - it says how much Lance logs, which has to be before Lance is imported
