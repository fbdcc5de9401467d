"""Storage adapters over Lance. Only these, `core.checkpoints` and the like packages of single services import lance."""

import os

# Lance reads it once, when it is imported: each commit of column files would print a warning.
os.environ.setdefault("LANCE_LOG", "error")
