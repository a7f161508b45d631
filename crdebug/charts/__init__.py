"""Pictures of what a session answers, in files. They need matplotlib, which is optional."""
