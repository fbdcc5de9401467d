"""What the benchmarks say of their own figures."""
