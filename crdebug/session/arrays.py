"""Numbers of the ranks: plots, and distributed arrays as one picture."""

from __future__ import annotations

from crdebug.base.answers import Answers, some
from crdebug.base.deadline import Deadline
from crdebug.base.errors import CrdebugError
from crdebug.base.ranks import RankSet
from crdebug.charts.images import Image, image
from crdebug.charts.plots import Plot, plot
from crdebug.debugger import arrays
from crdebug.debugger.arrays import Numbers
from crdebug.debugger.question import asked
from crdebug.session.looking import Looking
from crdebug.session.the_past import heard


class Arrays(Looking):
    """The verbs that read numbers from the ranks' memory."""

    async def numbers(self, ranks: RankSet, expression: str) -> Answers[Numbers]:
        """The number or array of numbers that an expression evaluates to on each rank."""
        limit = Deadline(self.settings.command)
        answers = await self._group.look(ranks, asked(arrays.numbers, expression, limit))
        if self.history is not None:
            said = Answers(dict.fromkeys(answers.values, expression), answers.errors)
            await heard(self.history, f"print {expression}", said)
        return answers

    async def plot(self, ranks: RankSet, expression: str, over: str = "") -> Plot:
        """An expression as lines or points: see crdebug.charts.plots.plot.

        over: an expression for the other axis; "" for the rank, or the index. Raises
        NoRankAnswered, BadInput.
        """
        found = some(await self.numbers(ranks, expression))
        others = some(await self.numbers(ranks, over)) if over else None
        return plot_over(expression, found, over, others)

    async def image(
        self,
        ranks: RankSet,
        expression: str,
        *,
        grid: tuple[int, int] | None = None,
        shape: tuple[int, int] | None = None,
    ) -> Image:
        """The ranks' arrays as one picture: see crdebug.charts.images.image.

        Raises NoRankAnswered, BadInput.
        """
        found = some(await self.numbers(ranks, expression))
        errors = found.merged_errors()
        return image(expression, found.values, ranks, grid=grid, shape=shape, errors=errors)


def plot_over(
    expression: str, found: Answers[Numbers], over: str, others: Answers[Numbers] | None
) -> Plot:
    """See Arrays.plot. others: the numbers of `over`; ranks without one are left out."""
    if others is None:
        return plot(expression, found.values, None, found.merged_errors())
    values = {rank: each for rank, each in found.values.items() if rank in others.values}
    errors: dict[int, CrdebugError] = {**found.errors, **others.errors}
    merged = Answers(values, errors).merged_errors()
    return plot(expression, values, (over, others.values), merged)
