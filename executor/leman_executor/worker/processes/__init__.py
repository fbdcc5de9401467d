"""Function processes: each version of a function runs in processes of its own (decision 20).

Whoever has a task (`caller.py`) asks the pool (`pool.py`), a process that runs no user code and forks others, for a
process that is bound to that version (`function_process.py`). What such a process starts with, and goes back to before
each job, is in `process_environment.py` and `descriptors.py`.
"""
