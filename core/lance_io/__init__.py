"""The only rooms that import lance, with `core.checkpoints`."""

import os

# Lance reads it once, when it is imported: each commit of column files would print a warning.
os.environ.setdefault("LANCE_LOG", "error")
