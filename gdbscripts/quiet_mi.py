"""-crdebug-breakpoints off|on: what the user has set stops nothing for a while.

Sourced into a rank's GDB. Only what was enabled before is enabled again.
"""

import gdb

silenced = []


class Breakpoints(gdb.MICommand):
    def invoke(self, arguments):
        if arguments == ["off"]:
            found = [each for each in gdb.breakpoints() if each.enabled]
            for each in found:
                each.enabled = False
            silenced.extend(found)
        elif arguments == ["on"]:
            for each in silenced:
                if each.is_valid():
                    each.enabled = True
            silenced.clear()
        else:
            raise gdb.GdbError("off or on is expected")


Breakpoints("-crdebug-breakpoints")
