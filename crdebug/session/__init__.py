"""The verbs of a session, by theme; crdebug.session.Session has them all."""
