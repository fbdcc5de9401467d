"""Run one job: make plans and execute them, commit, end the job, and report its state to history and watchers."""
