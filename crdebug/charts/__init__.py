"""Pictures of a session's answers, in files. They need matplotlib, which is optional."""
