"""Commits to views: creation, and one version with everything that a refresh changed."""
