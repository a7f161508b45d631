# What crdebug needs of a machine, tried out, with the Debian packages that have it; sourced, after
# lib.sh, by scripts/setup and by the setup beside this file.
# shellcheck shell=bash

scratch="$(mktemp -d)"
trap 'rm -rf -- "$scratch"' EXIT

# lacking WORDS...: it goes on, but not everything will work.
lacks=
lacking() {
    complain "$@"
    lacks=yes
}

# ---- what is tried out ---------------------------------------------------------------------

gdb_works() { [ "$(gdb_says gdb)" = works ]; }
private_gdb_works() { [ "$(gdb_says "$(data_home)/gdb/bin/gdb")" = works ]; }
cc_works() {
    printf '#include <pthread.h>\nint main(void) { return 0; }\n' >"$scratch/c.c"
    cc -o "$scratch/c" "$scratch/c.c" >/dev/null 2>&1
}
mpicc_works() {
    printf '#include <mpi.h>\nint main(void) { return MPI_VERSION < 2; }\n' >"$scratch/m.c"
    mpicc -o "$scratch/m" "$scratch/m.c" >/dev/null 2>&1
}

# ---- Debian's packages ---------------------------------------------------------------------

missing=()
wanting="installing" # what is said of a package that is missing
# want "PACKAGES" "WHY" PROBE...: note the packages if the probe fails.
want() {
    local packages="$1" why="$2"
    shift 2
    "$@" && return
    say "$wanting $packages: $why"
    # shellcheck disable=SC2206 # package names, to be split
    missing+=($packages)
}

want_gdb() { want gdb "the debugger, with Python inside" gdb_works; }
want_others() {
    want "gcc libc6-dev" "crdebug's native part is compiled on this machine" cc_works
    want "openmpi-bin libopenmpi-dev gcc libc6-dev" "an MPI, with its compiler wrappers" mpicc_works
    want "openmpi-bin" "an MPI's launcher" have mpirun
}

# tell_administrator: one line with all that is missing.
tell_administrator() {
    [ ${#missing[@]} -gt 0 ] || return 0
    local packages
    packages="$(printf '%s\n' "${missing[@]}" | sort -u | tr '\n' ' ')"
    if have apt-get; then
        say "for an administrator: apt-get install --no-install-recommends ${packages% }"
    else
        say "this machine has no apt; install by other means: ${packages% }"
    fi
}

# ---- a GDB of one's own ----------------------------------------------------------------------

# set_up_private_gdb: a newer GDB that takes no administrator.
set_up_private_gdb() {
    local gdb
    gdb="$(data_home)/gdb/bin/gdb"
    private_gdb_works || bash "$lib/install-gdb" || want_gdb
    if have gdb && private_gdb_works; then
        say "to use the GDB of crdebug setup, write into crdebug's config file: gdb = \"$gdb\""
    fi
}

# ---- CRIU ----------------------------------------------------------------------------------

# A private CRIU that worked before may not on the kernel of today.
drop_broken_criu() {
    local prefix
    prefix="$(data_home)/criu"
    [ -e "$prefix" ] || return 0
    (
        lock_prefix "$prefix"
        if ! criu_works "$prefix/bin/criu"; then
            say "removing the CRIU in $prefix, which does not work here: $criu_said"
            rm -rf -- "$prefix"
        fi
    )
}

# set_up_criu INSTALL...: run INSTALL if there is no CRIU that works. To have none is no reason to fail:
# a debugger without checkpoints is still a debugger.
set_up_criu() {
    if [ -n "${CRDEBUG_CRIU:-}" ]; then
        criu_works "$CRDEBUG_CRIU" || lacking "CRDEBUG_CRIU names $CRDEBUG_CRIU, which does not work: $criu_said"
    elif ! container_works; then # no CRIU could work
        lacking "going on without checkpoints: $criu_said"
    else
        drop_broken_criu
        a_criu_works || "$@"
    fi
}

# install_newer_criu: the one of a newer Debian release.
install_newer_criu() {
    bash "$lib/install-criu" || lacking "going on without checkpoints"
}
