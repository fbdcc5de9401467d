"""Run units where the rows are: read rows, call the function, write checkpoints and column files. No gRPC, no Spark."""
