"""Files that nothing needs any more: found, judged, removed."""
