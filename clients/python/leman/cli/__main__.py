"""`python -m leman.cli`: the same as `leman`."""

from leman._program import main

main()
