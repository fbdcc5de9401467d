"""Find, judge and remove files that nothing needs any more."""
