"""One job on this machine: its directory, its container, the holds on its ranks, its checkpoints.

Sessions, which have a debugger, and `crdebug.detached.jobs`, without one, are built from these
parts.
"""
