"""What runs where the rows are: reads, calls the function, checkpoints, writes column files. No gRPC, no Spark."""
