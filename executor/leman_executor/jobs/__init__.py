"""One job: planned, executed plan by plan, committed, ended; what history and its watchers see of it."""
