"""Run one job: plan it, execute plan after plan, commit, end it, and report its state to history and watchers."""
