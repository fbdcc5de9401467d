"""Runs jobs: functions as Spark tasks, checkpoints, column files. It never commits."""
