"""Views in Lance: what changed in a source, files of a view, commits to it."""
