"""Storage in Lance and files. Only this package, and its counterparts in single services, import lance."""

import os

# Lance reads it at import; otherwise each commit of column files prints a warning.
os.environ.setdefault("LANCE_LOG", "error")
