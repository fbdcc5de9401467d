"""What the planner, the executors and the commit coordinator share."""
