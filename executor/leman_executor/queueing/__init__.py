"""The queue of the jobs that wait for their turn: who is next, and when."""
