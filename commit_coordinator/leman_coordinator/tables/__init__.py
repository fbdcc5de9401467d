"""What callers do with tables and their rows by themselves, without a job."""
