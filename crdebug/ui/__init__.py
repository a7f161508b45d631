"""The terminal: the only code that shows anything, with cli.py."""
