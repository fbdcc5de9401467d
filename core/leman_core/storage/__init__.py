"""Storage over Lance, and files. Only this package and its like in single services import lance."""

import os

# Lance reads it once, when it is imported: each commit of column files would print a warning.
os.environ.setdefault("LANCE_LOG", "error")
