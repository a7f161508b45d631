"""The user's commands: declared once, run on a session, answered with values."""
