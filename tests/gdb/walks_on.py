"""A crdebug that is killed while its GDB walks a thread: `python walks_on.py PID`.

First it writes the process number of its GDB.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys

from processes import soon

from crdebug.attached.gdbs import scripts
from crdebug.debugger.gdb import GdbTarget
from crdebug.native.build import build
from crdebug.node import proc

# To no point, and with all the time that there is.
_WALK = (
    "from crdebug_gdb.stepper import commands, engine;"
    " from crdebug_gdb.snapshot.memory import Memory;"
    " memory = Memory({pid}).__enter__();"
    " engine.Engine(commands.walking.library, memory, {pid}, 1e9).run([])"
)


async def main(pid: int) -> None:
    native = await build(os.environ.get("CC", "cc"), soon())
    target = await GdbTarget.launch(0, soon(), scripts=[*scripts()])
    await target.attach(pid, soon())
    await target.console("python import crdebug_gdb.stepper", soon())
    await target.mi(f"-crdebug-walk-library {native.stepper}", soon())
    walk = asyncio.create_task(target.console(f"python {_WALK.format(pid=pid)}", soon()))
    before = proc.processor_time(pid)
    await soon().until(lambda: proc.processor_time(pid) > before, "the walk")
    print(target.gdb_pid, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
    await walk


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
