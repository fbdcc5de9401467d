"""`python -m leman.cli`: the same as `leman`."""

from leman.cli import main

main()
