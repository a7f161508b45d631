"""The names of the programs that start ranks."""

from __future__ import annotations

LAUNCHERS = ("mpirun", "mpiexec")
LAUNCHER_VARIANTS = ("", ".openmpi", ".mpich", ".hydra")
NAMES = frozenset(name + variant for name in LAUNCHERS for variant in LAUNCHER_VARIANTS) | {
    "orterun",
    "prterun",
}
