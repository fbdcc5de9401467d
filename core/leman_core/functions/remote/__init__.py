"""Remote functions: what planner and workers both need to speak with the servers that compute them.

The protocol `leman.function.v1` over Arrow Flight is described in docs/remote_functions.md.
"""
