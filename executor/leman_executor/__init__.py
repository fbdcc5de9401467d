"""Run jobs: functions as Spark tasks, checkpoints, column files. The executor never commits."""
