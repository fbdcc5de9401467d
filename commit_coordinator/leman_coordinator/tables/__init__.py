"""Operations of callers on tables and rows, without a job."""
