"""SQL as callers write it: checked, translated for Lance, judged from its text. Needs no table."""
