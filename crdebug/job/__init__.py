"""One job on this machine: its directory, its container, its ranks' shims, its checkpoints.

What a session does with a debugger and `crdebug.detached.jobs` without one is made of these parts.
"""
