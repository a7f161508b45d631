"""Pictures of a session's answers, which need matplotlib, and pages, in files."""
