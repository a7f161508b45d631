"""How long the job runs between two stops of crdebug's own, so that these cost no more than a part
of the run. Pure; all times are in seconds.

A snapshot costs the time for which the job stands for it, from the interrupt until ranks go on, and
some time afterwards: the first write to each page that a frozen snapshot shares with a rank is a
fault and a copy. There are as many of these as pages that change from one snapshot to the next.
They are counted before the next one is due (`caused`), so that it comes only when these are paid
off too, and in full when it has been taken (`KeptInfo.changed`). All ranks run at once, and wait
for each other: the one that has changed most counts.
Pages that are new to a rank are counted too, though they would have cost nearly as much without a
snapshot. A snapshot that was copied causes no such faults, nor does the first one, which shares its
pages with none before it.

Checkpoints cost the time for which the job stands. They get at most a quarter of the budget, and
snapshots, which lead back to places nearby, get the rest. The next one costs as much as the last
one, and more if the ranks have more memory by then: the first one is taken before they have any.
"""

from __future__ import annotations

import math

BUDGET = 0.02  # of the run, if the user does not choose
CHECKPOINTS = 0.25  # of the budget

FIRST = 2.0  # of run before the first snapshot, when nobody knows what one costs
LEAST = 0.5  # between two snapshots: to repeat half a second takes about as long as to put one back
GREATEST = 600.0  # between two snapshots, whatever one cost
# between two checkpoints, whatever one costs: without a snapshot, this much has to be repeated
GREATEST_CHECKPOINT = 300.0

# A fault that copies a page of 4 KiB takes 2.9 microseconds of the processor, also for huge pages,
# which the kernel then splits. Measured with Linux 6 in a virtual machine, where faults take longer
# than on bare metal.
COPYING = 0.8 / (1 << 30)  # per byte
# What CRIU takes to write a rank's memory, and the kernel to have it on the disk: measured with
# 2 x 1 GiB on the same machine.
WRITING = 0.8 / (1 << 30)  # per byte, of all ranks together


class Stops:
    """The stops of one kind: what they have cost, and when the next one is due.

    since: how long the job has run since the last one.  spent: on all of them.
    foreseen: how much more the next one will cost than the last one did; this is paid before.
    """

    def __init__(self, greatest: float) -> None:
        self.since = self.spent = self.foreseen = 0.0
        self.count = 0
        self._greatest = greatest
        self._owed = 0.0  # when the last one was over; the run since pays it off
        self._caused = 0.0  # the part of it that was seen to be caused by the last one
        self._seen = 0.0  # the same of the one before

    def ran(self, seconds: float) -> None:
        self.since += seconds

    def stopped(self, part: float) -> None:
        """The job has been stopped for the next one. part: of the run that they may cost."""
        paid = self.since >= self._greatest
        self._owed = 0.0 if paid else max(self._owed - part * self.since, -self.foreseen)
        self.since = self.foreseen = 0.0
        self.count += 1
        self._seen, self._caused = self._caused, 0.0

    def cost(self, seconds: float) -> None:
        """The last one has cost this much more."""
        self.spent += seconds
        self._owed += seconds

    def caused(self, seconds: float) -> None:
        """The last one has cost so much until now by what it makes ranks do."""
        if seconds > self._caused:
            self.cost(seconds - self._caused)
            self._caused = seconds

    def had_caused(self, seconds: float) -> None:
        """The one before has cost so much in that way, of which `caused` may know a part."""
        self.cost(max(seconds - self._seen, 0.0))
        self._seen = 0.0

    def expect(self, seconds: float) -> None:
        """There is one that cost nothing, and the next one will cost about this much."""
        self._owed, self.since = seconds, 0.0

    def interval(self, part: float, least: float) -> float:
        """From the last one to the next; for ever, if they may cost nothing."""
        if not part:
            return math.inf
        return max(min((self._owed + self.foreseen) / part, self._greatest), least)

    def takes(self, part: float, least: float) -> float:
        """Their present cost, as a part of the run; at most the part that they may cost."""
        interval = self.interval(part, least)
        return min((self._owed + self.foreseen) / interval, part) if interval else 0.0


class Costs:
    """The cost of a job's snapshots and automatic checkpoints. budget: what they may cost together,
    as a part of the run; 0: no snapshots are taken while the job runs."""

    def __init__(self) -> None:
        self.budget = BUDGET
        self.run = 0.0
        self.snapshots = Stops(GREATEST)
        self.checkpoints = Stops(GREATEST_CHECKPOINT)

    def ran(self, seconds: float) -> None:
        self.run += seconds
        self.snapshots.ran(seconds)
        self.checkpoints.ran(seconds)

    @property
    def spent(self) -> float:
        """On all stops, as a part of the run."""
        spent = self.snapshots.spent + self.checkpoints.spent
        return spent / self.run if self.run else 0.0

    @property
    def part_of_checkpoints(self) -> float:
        """If there are no snapshots, the part that checkpoints have by default."""
        return CHECKPOINTS * (self.budget or BUDGET)

    def part_of_snapshots(self, every: float) -> float:
        """every: the least interval of checkpoints; 0: there are none."""
        if not self.budget or not every:
            return self.budget
        return self.budget - self.checkpoints.takes(self.part_of_checkpoints, every)

    def snapshot_interval(self, every: float) -> float:
        part = self.part_of_snapshots(every)
        return self.snapshots.interval(part, LEAST if self.snapshots.count else FIRST)

    def checkpoint_interval(self, every: float) -> float:
        return self.checkpoints.interval(self.part_of_checkpoints, every)
