"""A parallel debugger's first steps, written from "The MPIR Process Acquisition Interface" (version
1.1, MPI Forum 2018) alone: it knows nothing of crdebug, and drives stock GDBs over MI."""

from __future__ import annotations

import os
import queue
import re
import shlex
import signal
import subprocess
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

SPAWNED, ABORTING = 1, 2  # MPIR_debug_state, section 9.4
_SECONDS = 60.0


class Gdb:
    """A GDB, the program it starts or the process that it attaches to."""

    def __init__(self, *arguments: str) -> None:
        words = ["gdb", "-nx", "-q", "--interpreter=mi3", *arguments]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(words, stdin=pipe, stdout=pipe, text=True)
        self._lines: queue.Queue[str] = queue.Queue()
        self._stops: list[str] = []
        self._heard: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @classmethod
    def at(cls, pid: int) -> Gdb:
        """Attached to a process, which has stopped. As an ordinary user's GDB cannot enter the
        container, docs/gdb.md says."""
        gdb = cls()
        if os.geteuid() != 0:
            gdb.say("-gdb-set sysroot /")
        gdb.say(f"-target-attach {pid}")
        gdb.stopped()
        return gdb

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)

    def _next(self) -> str:
        try:
            line = self._lines.get(timeout=_SECONDS)
        except queue.Empty:
            raise AssertionError(f"GDB says nothing after\n{''.join(self._heard)}") from None
        self._heard.append(line)
        if line.startswith("*stopped"):
            self._stops.append(line)
        return line

    def say(self, command: str) -> str:
        """Its result. Raises AssertionError for an error."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"7{command}\n")
        self._process.stdin.flush()
        while not (line := self._next()).startswith("7^"):
            continue
        assert not line.startswith("7^error"), f"{command}: {line}"
        return line

    def stopped(self) -> str:
        """Wait for the next stop."""
        while not self._stops:
            self._next()
        return self._stops.pop(0)

    def go(self) -> None:
        self.say("-exec-continue")

    def value(self, expression: str) -> str:
        told = self.say(f'-data-evaluate-expression "{expression}"')
        found = re.search(r'value="(.*)"\n', told)
        assert found is not None, told
        return found[1]

    def text(self, expression: str) -> str:
        """Of a char pointer."""
        return self.value(expression).partition(r"\"")[2].rpartition(r"\"")[0]

    def quit(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._process.stdin as commands:
            commands.write("-gdb-exit\n")
        self._process.wait(_SECONDS)
        self._reader.join()
        self._process.stdout.close()

    def interrupt(self) -> None:
        """Have it stop what runs, as Ctrl-C does."""
        self._process.send_signal(signal.SIGINT)


@dataclass(frozen=True, slots=True)
class Process:
    """An MPIR_PROCDESC, section 9.1."""

    host: str
    executable: str
    pid: int


class Tool:
    """A GDB at the starter process, which has the symbols of section 9."""

    def __init__(self, starter: Gdb) -> None:
        self.starter = starter
        for marker in ("MPIR_i_am_starter", "MPIR_Breakpoint", "MPIR_partial_attach_ok"):
            starter.value(f"&{marker}")
        starter.say("-gdb-set var MPIR_being_debugged=1")

    @classmethod
    def launch(cls, program: str, arguments: Sequence[str], output: Path) -> Tool:
        """Start the starter process; section 6.1. Returns when all ranks were created."""
        gdb = Gdb(program)
        gdb.say(f"-exec-arguments {shlex.join(arguments)} > {output} 2>&1")
        gdb.say("-break-insert main")
        gdb.say("-exec-run")
        gdb.stopped()
        tool = cls(gdb)
        gdb.say("-break-insert MPIR_Breakpoint")
        gdb.go()
        assert tool.state_at_breakpoint() == SPAWNED
        return tool

    @classmethod
    def attach(cls, pid: int) -> Tool:
        """To a starter process that runs; section 6.2."""
        return cls(Gdb.at(pid))

    def state_at_breakpoint(self) -> int:
        stop = self.starter.stopped()
        assert 'func="MPIR_Breakpoint"' in stop, stop
        return int(self.starter.value("MPIR_debug_state"))

    def table(self) -> list[Process]:
        starter = self.starter
        rows = [f"MPIR_proctable[{i}]" for i in range(int(starter.value("MPIR_proctable_size")))]
        return [
            Process(
                starter.text(f"{row}.host_name"),
                starter.text(f"{row}.executable_name"),
                int(starter.value(f"{row}.pid")),
            )
            for row in rows
        ]

    def leave(self) -> None:
        self.starter.say("-gdb-set var MPIR_being_debugged=0")
        self.starter.say("-target-detach")
        self.starter.quit()
