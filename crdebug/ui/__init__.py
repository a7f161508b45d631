"""The terminal: only this package and cli.py print."""
