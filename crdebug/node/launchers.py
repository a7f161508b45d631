"""What the programs that start ranks are called."""

from __future__ import annotations

LAUNCHERS = ("mpirun", "mpiexec")
LAUNCHER_VARIANTS = ("", ".openmpi", ".mpich", ".hydra")
