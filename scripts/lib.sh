# Shared by the scripts beside it; sourced, never run. Needs bash and Debian's base system only.
# shellcheck shell=bash

# criu and ip live in sbin, which a login shell's PATH may lack.
PATH="$PATH:/usr/local/sbin:/usr/sbin:/sbin"
export PATH

say() { printf '%s: %s\n' "${0##*/}" "$*"; }
complain() { printf '%s: %s\n' "${0##*/}" "$*" >&2; }
fail() {
    complain "$@"
    exit 1
}
have() { command -v "$1" >/dev/null 2>&1; }

# The same answer as crdebug.config.data_home(), which needs no Python here.
data_home() {
    if [ -n "${CRDEBUG_DATA:-}" ]; then
        printf '%s\n' "$CRDEBUG_DATA"
    else
        printf '%s/crdebug\n' "${XDG_DATA_HOME:-$HOME/.local/share}"
    fi
}

# Does this CRIU work on this kernel? A version says nothing about that; `criu check` does.
criu_works() { have "$1" && "$1" check >/dev/null 2>&1; }

# Why it does not, in its own words (one line).
criu_complaint() {
    have "$1" || {
        printf 'there is no %s\n' "$1"
        return
    }
    { "$1" check 2>&1 || true; } | grep -v 'criu/util.c' | grep -m 1 -E 'Error|Warn|[Pp]ermi' || printf 'it does not say\n'
}

# Prints the first CRIU that works, in the order of crdebug.config.criu_candidates().
working_criu() {
    local candidate
    if [ -n "${CRDEBUG_CRIU:-}" ]; then
        set -- "$CRDEBUG_CRIU"
    else
        set -- "$(data_home)/criu/bin/criu" criu
    fi
    for candidate in "$@"; do
        if criu_works "$candidate"; then
            command -v "$candidate"
            return 0
        fi
    done
    return 1
}

# `apt-get update`, at most once for each run. One broken third-party entry must not stop us:
# what is really missing then shows when it is installed.
lists_are_fresh=
refresh_lists() {
    [ -z "$lists_are_fresh" ] || return 0
    apt-get -q update >/dev/null || complain "apt-get update had errors (above); going on with what it has"
    lists_are_fresh=yes
}
