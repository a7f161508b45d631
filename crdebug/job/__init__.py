"""One job on this machine: its directory, its container, how its ranks are held, its checkpoints.

What a session does with a debugger and `crdebug.detached.jobs` without one is made of these parts.
"""
