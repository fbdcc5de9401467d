"""Cases that every client passes, in whatever language: see tests/conformance/cases/README.md."""
