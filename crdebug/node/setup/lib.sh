# Shared by the scripts beside it, which `crdebug setup` runs, and by those in scripts/ of the
# repository; sourced, never run. Needs bash and Debian's base system only.
# shellcheck shell=bash

lib="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"

# criu lives in sbin, which a login shell's PATH may lack.
PATH="$PATH:/usr/local/sbin:/usr/sbin:/sbin"
export PATH

say() { printf '%s: %s\n' "${0##*/}" "$*"; }
complain() { printf '%s: %s\n' "${0##*/}" "$*" >&2; }
fail() {
    complain "$@"
    exit 1
}
am_root() { [ "$(id -u)" -eq 0 ]; }
have() { command -v "$1" >/dev/null 2>&1; }

# The same answer as crdebug.base.settings.data_home(), which needs no Python here.
data_home() {
    if [ -n "${CRDEBUG_DATA:-}" ]; then
        printf '%s\n' "$CRDEBUG_DATA"
    else
        printf '%s/crdebug\n' "${XDG_DATA_HOME:-$HOME/.local/share}"
    fi
}

# "works", if this GDB runs and its Python finds its modules, in C too; else what is wrong.
gdb_says() {
    local told
    told="$("$1" -nx -batch -ex 'python import ctypes, struct; print("works")' 2>&1)" || true
    printf '%s\n' "${told##*$'\n'}"
}

# Tries a CRIU on this kernel, in a few tenths of a second. Neither its version nor `criu check` says
# whether it works; see crdebug/node/criu_trial.py. What came of it is in criu_said then.
criu_said=
criu_works() {
    local program
    program="$(command -v "$1" 2>/dev/null)" || {
        criu_said="there is no $1"
        return 1
    }
    criu_trial "$(realpath -s "$program")"
}

# Can this user have the container at all that a job is checkpointed in?
container_works() { criu_trial --container; }

criu_trial() {
    local status=0
    # It makes its files in the current directory, which need not be the user's.
    criu_said="$(cd "${TMPDIR:-/tmp}" && "$(trial_python)" -I "$lib/../criu_trial.py" "$1" 2>&1)" || status=$?
    criu_said="${criu_said##*$'\n'}" # a traceback's last line is the one that tells
    return "$status"
}

# Any Python 3 will do for a trial: the one that crdebug runs in, or that scripts/setup has found; else
# the checkout's.
trial_python() {
    local candidate
    for candidate in "${CRDEBUG_PYTHON:-}" "$lib/../../../.venv/bin/python"; do
        if [ -x "$candidate" ]; then
            printf '%s\n' "$candidate"
            return
        fi
    done
    printf 'python3\n'
}

# Is there a CRIU that works, among those of crdebug.base.settings.criu_candidates()?
a_criu_works() {
    if [ -n "${CRDEBUG_CRIU:-}" ]; then
        criu_works "$CRDEBUG_CRIU"
    else
        criu_works "$(data_home)/criu/bin/criu" || criu_works criu
    fi
}

# lock_prefix PREFIX: one setup at a time works on it, as long as this process and its children live. A
# second one waits here, and then finds the work done.
lock_prefix() {
    exec 9>"$1.lock"
    flock -n 9 || {
        say "another setup is at work on $1; waiting for it"
        flock 9
    }
}

# `apt-get update`, at most once for each run. One broken third-party entry must not stop us:
# what is really missing then shows when it is installed.
lists_are_fresh=
refresh_lists() {
    [ -z "$lists_are_fresh" ] || return 0
    am_root || fail "apt has no list of packages yet; for an administrator: apt-get update"
    apt-get -q update >/dev/null || complain "apt-get update had errors (above); going on with what it has"
    lists_are_fresh=yes
}
