"""crdebug: a checkpoint/restart-enabled, time-travelling parallel debugger for MPI."""

__version__ = "0.1.0"
