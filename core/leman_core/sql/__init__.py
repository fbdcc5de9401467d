"""Callers' SQL: check it, translate it for Lance, analyse its text. Needs no table."""
