# A program of a newer Debian suite, for crdebug alone; sourced by install-criu and install-gdb.
# shellcheck shell=bash
#
# Nothing of the system is upgraded or touched: apt works on lists, sources and a (void) package status
# of its own, in a temporary directory, and checks signatures as ever; the packages are unpacked, not
# installed. The prefix has its own C library, so the program there starts through the prefix's own
# dynamic loader. Programs that it starts itself (a shell) are the system's.
#
# The mirror is the one that this machine's apt already uses for Debian.

suites=(trixie forky sid)

# Which of apt's entries is Debian's own archive? The signed Release file says so (Origin,
# Label); the entry's text would only say what somebody named it. Prints FILE:NUMBER.
debian_entry() {
    # shellcheck disable=SC2016 # apt's own variables
    apt-get indextargets --format '$(ORIGIN)|$(LABEL)|$(COMPONENT)|$(CODENAME)|$(SOURCESENTRY)' \
        'Created-By: Packages' |
        awk -F'|' '$1 == "Debian" && $2 == "Debian" && $3 == "main" && $4 !~ /-/ { print $5; exit }'
}

# write_sources FILE:NUMBER SUITE DIRECTORY: the same entry for another suite. Everything that
# makes the archive reachable and trusted (URIs, Signed-By, Trusted ...) stays as it is.
write_sources() {
    local file="${1%:*}" number="${1##*:}" suite="$2" out="$3"
    case "$file" in
    *.sources) # deb822; NUMBER counts stanzas
        awk -v wanted="$number" '
            /^[ \t]*$/ { if (inside) { inside = 0 } next }
            /^#/ { next }
            !inside { inside = 1; stanza++ }
            stanza != wanted { next }
            /^[^ \t]/ { keep = tolower($0) !~ /^(types|suites|components|enabled|architectures|languages|targets|pdiffs|default-release)[ \t]*:/ }
            keep { print }
        ' "$file" >"$out/debian.sources"
        printf 'Types: deb\nSuites: %s\nComponents: main\nArchitectures: %s\nLanguages: none\nTargets: Packages\n' \
            "$suite" "$(dpkg --print-architecture)" >>"$out/debian.sources"
        ;;
    *) # one line; NUMBER counts lines
        sed -n -E "${number}s#^[[:space:]]*deb[[:space:]]+((\[[^]]*\])[[:space:]]*)?([^[:space:]]+)[[:space:]].*#deb \2 \3 $suite main#p" \
            "$file" >"$out/debian.list"
        ;;
    esac
}

# unpack_suite ENTRY PACKAGE SUITE WORK ROOT: a package of that suite with all that it needs, unpacked
# below ROOT.
unpack_suite() {
    local entry="$1" package="$2" suite="$3" base="$4/$3" root="$5" deb
    mkdir -p "$base/sources" "$base/state/lists/partial" "$base/archives/partial"
    : >"$base/state/status" # nothing counts as installed, so the closure is complete, libc included
    write_sources "$entry" "$suite" "$base/sources"
    local -a apt=(apt-get -q
        -o Dir::Etc::sourcelist=/dev/null -o "Dir::Etc::sourceparts=$base/sources"
        -o Dir::Etc::preferences=/dev/null -o Dir::Etc::preferencesparts=/dev/null
        -o "Dir::State=$base/state" -o "Dir::State::lists=$base/state/lists"
        -o "Dir::State::status=$base/state/status"
        -o "Dir::Cache::archives=$base/archives" -o Dir::Cache::pkgcache= -o Dir::Cache::srcpkgcache=
        -o Acquire::Languages=none -o APT::Default-Release= -o "Dir::Log=$base")
    if ! "${apt[@]}" update >"$base/log" 2>&1; then
        # A mirror that is a snapshot has a testing whose Release file is rightly older than its
        # Valid-Until, which is there against mirrors that withhold updates. For one program, to
        # be tried before it is used, a signed old list is as good; signatures are still checked.
        grep -q 'is expired' "$base/log" || {
            sed 's/^/    /' "$base/log" >&2
            return 1
        }
        say "the mirror's lists of $suite are old; going on with them"
        apt+=(-o Acquire::Check-Valid-Until=false)
        "${apt[@]}" update >"$base/log" 2>&1 || {
            sed 's/^/    /' "$base/log" >&2
            return 1
        }
    fi
    "${apt[@]}" install --yes --no-install-recommends --download-only "$package" >"$base/log" 2>&1 || {
        sed 's/^/    /' "$base/log" >&2
        return 1
    }
    for deb in "$base"/archives/*.deb; do
        dpkg-deb -x "$deb" "$root" || return 1
    done
    rm -rf -- "$base"
}

# write_wrapper ROOT NAME: ROOT/bin/NAME, which finds everything relative to itself. It names paths by
# globs once, here, since they differ by architecture and by suite (merged /usr or not).
# $settings, if any: lines of shell for it; they may use $root.
write_wrapper() {
    local root="$1" name="$2" loader directory libraries='' program
    loader="$(cd "$root" && find . -name 'ld-linux*.so.*' -o -name 'ld64.so.*' | sort | head -n 1)"
    program="$(cd "$root" && find . -path "*/sbin/$name" -o -path "*/bin/$name" | head -n 1)"
    [ -n "$loader" ] && [ -n "$program" ] || return 1
    # the directories that hold shared libraries themselves, not plug-ins of theirs
    while IFS= read -r directory; do
        libraries="$libraries${libraries:+:}\$root/${directory#./}"
    done < <(cd "$root" && find . -type d \( -path '*/lib/*-linux-*' -o -path '*/lib64' -o -path '*/lib' \) \
        ! -path '*-linux-*/*' ! -path '*/share/*' ! -path '*/python3*' | sort)
    mkdir -p "$root/bin" "$root/usr/lib/$name" # a CRIU that cannot open the latter calls it an error
    # --library-path, not LD_LIBRARY_PATH: programs that it starts must not inherit it.
    cat >"$root/bin/$name" <<WRAPPER
#!/bin/sh
# Written by crdebug's install-$name (crdebug/node/setup).
root="\$(dirname -- "\$(dirname -- "\$(readlink -f -- "\$0")")")"
${settings:-}
exec "\$root/${loader#./}" --library-path "$libraries" "\$root/${program#./}" "\$@"
WRAPPER
    chmod 755 "$root/bin/$name"
}

work=
staged=
# shellcheck disable=SC2317 # called by trap
cleanup() {
    [ -z "$work" ] || rm -rf -- "$work"
    [ -z "$staged" ] || rm -rf -- "$staged"
}

# install_newer NAME PREFIX HOPELESS: the first suite's NAME that works, in PREFIX; fails with HOPELESS if
# there is none. To be defined before: works FILE, which tries it and sets $said; superfluous, what no
# part of it reads.
install_newer() {
    local name="$1" prefix="$2" hopeless="$3" entry current suite each
    { have apt-get && have dpkg-deb; } || fail "this needs apt and dpkg: $hopeless"
    trap cleanup EXIT
    mkdir -p -- "$(dirname "$prefix")"
    lock_prefix "$prefix"
    for each in "$prefix".new.*; do # a setup that was killed has left it: a live one has the lock
        [ ! -e "$each" ] || { say "removing $each, which an interrupted setup left" && rm -rf -- "$each"; }
    done
    if works "$prefix/bin/$name"; then
        say "the $name in $prefix works"
        return 0
    fi
    [ ! -e "$prefix" ] || say "the $name in $prefix does not work and will be replaced: $said"
    entry="$(debian_entry)"
    if [ -z "$entry" ]; then # a fresh machine has no lists yet
        refresh_lists
        entry="$(debian_entry)"
    fi
    [ -n "$entry" ] || fail "none of apt's sources is Debian's archive (main): $hopeless"
    # apt fetches as an unprivileged user, who must be able to reach this; below $HOME that fails.
    work="$(mktemp -d)"
    chmod 755 "$work"
    current="$(. /etc/os-release && printf '%s' "${VERSION_CODENAME:-}")"
    for suite in "${suites[@]}"; do
        [ "$suite" != "$current" ] || continue # that is the distribution's
        say "installing the $name of Debian $suite into $prefix, for crdebug alone"
        staged="$prefix.new.$$"
        rm -rf -- "$staged"
        mkdir -p -- "$staged"
        if ! unpack_suite "$entry" "$name" "$suite" "$work" "$staged" || ! write_wrapper "$staged" "$name"; then
            complain "the $name of Debian $suite cannot be had here"
        elif ! works "$staged/bin/$name"; then
            complain "the $name of Debian $suite does not work here either: $said"
        else
            for each in "${superfluous[@]}"; do
                rm -rf -- "${staged:?}/$each"
            done
            works "$staged/bin/$name" || fail "the $name of Debian $suite misses a file that was thought superfluous ($said); please report this"
            rm -rf -- "$prefix"
            mv -- "$staged" "$prefix"
            staged=
            say "$("$prefix/bin/$name" --version | head -n 1) in $prefix works"
            return 0
        fi
        rm -rf -- "$staged"
    done
    fail "$hopeless"
}
