"""The variables that crdebug adds to a launcher's environment, and why."""

from __future__ import annotations

import os
from collections.abc import Mapping

from crdebug.job.output_labels import IN_OPEN_MPI_4
from crdebug.node import bare

_CARDS = "transports that bypass the kernel cannot be dumped"
_GRAPHICS = "drivers of graphics cards, which hwloc would load in every rank, cannot be dumped"
_NETWORK = "the container has no other network through which to reach spawned processes"
_SESSION = "the session directory must belong to this job alone, and be in the image"
_BY_SLURM = "in a Slurm allocation MPICH would let Slurm start the ranks, outside of the container"
_SIZE = "only with it does prterun, like mpirun, tell its ranks how many there are"
_ROOT = "mpirun refuses to run as root without it, and the container needs root"
# Variables that a launcher or a transport needs so that the job can be dumped, and why. Other MPIs
# ignore them. Variables that the user has set are left alone.
NEEDED: Mapping[str, tuple[str, str]] = {
    "OMPI_MCA_orte_tmpdir_base": ("/dev/shm", _SESSION),
    "PRTE_MCA_prte_tmpdir_base": ("/dev/shm", _SESSION),
    "PMIX_SYSTEM_TMPDIR": ("/dev/shm", _SESSION),
    "OMPI_MCA_pml": ("ob1", _CARDS),
    "OMPI_MCA_btl": ("self,vader,tcp", _CARDS),
    "OMPI_MCA_btl_tcp_if_include": ("lo", _NETWORK),
    "UCX_TLS": ("self,posix,cma,tcp", _CARDS),  # "sm" has System V's as well, which takes root
    # Each of these asks a graphics card, or the X server, where it is (hwloc's manual,
    # "Environment Variables"). The OpenCL and X11 libraries behind two of them are a fifth of those
    # that MPI_Init loads with Debian's MPIs, and GDB reads the whole list each time one comes.
    "HWLOC_PLUGINS_BLACKLIST": (
        "hwloc_gl.so,hwloc_opencl.so,hwloc_cuda.so,hwloc_nvml.so,hwloc_rsmi.so,hwloc_levelzero.so",
        _GRAPHICS,
    ),
    "HYDRA_LAUNCHER": ("fork", _BY_SLURM),
    "PRTE_MCA_schizo_proxy": ("ompi", _SIZE),
}
_AS_ROOT: Mapping[str, tuple[str, str]] = {
    "OMPI_ALLOW_RUN_AS_ROOT": ("1", _ROOT),
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": ("1", _ROOT),
    "PRTE_ALLOW_RUN_AS_ROOT": ("1", _ROOT),
    "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM": ("1", _ROOT),
}
# Variables that name the directory for an MPI's files. Without a container, these are to be in one
# that is removed with the job: a launcher that is killed removes nothing.
IN_SCRATCH = (
    "OMPI_MCA_orte_tmpdir_base",
    "PRTE_MCA_prte_tmpdir_base",
    "PMIX_SYSTEM_TMPDIR",
    "OMPI_MCA_btl_vader_backing_directory",
    "OMPI_MCA_btl_sm_backing_directory",
)
_IN_SCRATCH = "without a container, an MPI's files are where they can be removed with the job"
_BARE: Mapping[str, str] = {
    **dict.fromkeys(IN_SCRATCH, _IN_SCRATCH),
    bare.MARK: "without a container, the job's processes are known by it",
    bare.DIRECTORY: "without a container, the job's directory is there",
    bare.LOGS: "without a container, the record of MPI calls is there",
    bare.OVER_HOSTS: "ranks on several hosts wait for debuggers as long as it is there",
    bare.CONNECT: "connections that are there from the beginning can be taken back in time",
    bare.TRACER: "Yama lets only the process of this number debug the ranks",
}
_LABELS = "'label-output' is on: each line is to say which rank wrote it"
_LABELLED: Mapping[str, tuple[str, str]] = {
    IN_OPEN_MPI_4: ("1", _LABELS),
}
# For programs built with a sanitizer; only if ranks wait for a debugger.
_DEBUGGED: Mapping[str, tuple[str, str]] = {
    "LSAN_OPTIONS": ("detect_leaks=0", "LeakSanitizer ends a program that a debugger traces"),
}
_RECORDED: Mapping[str, tuple[str, str]] = {
    "PYTHONHASHSEED": ("0", "a replay repeats the order of Python's sets only with a fixed seed"),
}


def added_to(
    environment: Mapping[str, str],
    *,
    debugged: bool = False,
    recorded: bool = False,
    labelled: bool = False,
    over_hosts: bool = False,
) -> dict[str, str]:
    """The variables added to the user's environment, so that the job can be dumped, debugged, and
    replayed. labelled: and so that its output is marked by rank, see output_labels.py. over_hosts:
    it is to reach other hosts, and cannot be dumped."""
    needed = {
        **({} if over_hosts else NEEDED),
        **(_AS_ROOT if os.geteuid() == 0 else {}),
        **(_DEBUGGED if debugged else {}),
        **(_RECORDED if recorded else {}),
        **(_LABELLED if labelled else {}),
    }
    if "OMPI_MCA_btl_tcp_if_exclude" in environment:  # Open MPI refuses to have both
        needed.pop("OMPI_MCA_btl_tcp_if_include", None)
    return {name: value for name, (value, _) in needed.items() if name not in environment}


def why_added(name: str) -> str:
    """The reason for a variable of `added_to`, or of a job without a container."""
    found = {**NEEDED, **_AS_ROOT, **_DEBUGGED, **_RECORDED, **_LABELLED}.get(name, ("", ""))[1]
    return found or _BARE.get(name, "")
