"""The life of a job: accepted, planned, worked through in rounds, committed, ended, taken over."""
