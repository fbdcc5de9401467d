"""Lance operations for commits: installing files in a table, changing rows and columns, notes next to the table."""

import leman_core.storage  # noqa: F401 - sets Lance's log level, which must happen before Lance is imported
