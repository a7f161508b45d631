"""Questions to ranks as data, so that they can be put to ranks on other hosts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, cast

from crdebug.base.deadline import FOR_EVER, Deadline
from crdebug.debugger.target import Target

P = ParamSpec("P")
T = TypeVar("T")
V = TypeVar("V")
T_co = TypeVar("T_co", covariant=True)

_known: dict[str, Callable[..., Awaitable[object]]] = {}
_alike: dict[str, Callable[[Mapping[int, Any]], Mapping[int, Any]]] = {}


def question(
    function: Callable[Concatenate[Target, P], Awaitable[T]],
) -> Callable[Concatenate[Target, P], Awaitable[T]]:
    """Register a coroutine function as a question; it stays as it is. Its arguments and its answer
    are values that crdebug.hosts.codec can carry."""
    _known[_name(function)] = function
    return function


def answers_alike(
    make: Callable[[Mapping[int, T]], Mapping[int, T]],
) -> Callable[
    [Callable[Concatenate[Target, P], Awaitable[T]]],
    Callable[Concatenate[Target, P], Awaitable[T]],
]:
    """`question`, for answers of which not every difference matters. make: from those of ranks of
    one host, by rank, the same without such differences, so that they travel as one."""

    def register(
        function: Callable[Concatenate[Target, P], Awaitable[T]],
    ) -> Callable[Concatenate[Target, P], Awaitable[T]]:
        _alike[_name(function)] = make
        return question(function)

    return register


@dataclass(frozen=True, slots=True)
class Question(Generic[T_co]):
    """A question that `question` has registered.

    name: of its function, with its module.
    arguments: those after the target.
    """

    name: str
    arguments: tuple[object, ...]

    async def __call__(self, target: Target) -> T_co:
        """The target's answer. Raises what the function raises; KeyError for an unknown name."""
        return cast(T_co, await _known[self.name](target, *self.arguments))

    def made_alike(self, values: Mapping[int, T]) -> Mapping[int, T]:
        """The answers of ranks of one host, by rank, as `answers_alike` has them."""
        make = _alike.get(self.name)
        return values if make is None else make(values)

    @property
    def known(self) -> bool:
        """Has it been registered here?"""
        return self.name in _known

    @property
    def seconds(self) -> float:
        """How long the answer may take from now on."""
        limits = [each.left for each in self.arguments if isinstance(each, Deadline)]
        return max(limits, default=FOR_EVER)


def asked(
    function: Callable[Concatenate[Target, P], Awaitable[T]], *args: P.args, **kwargs: P.kwargs
) -> Question[T]:
    """A registered function and its arguments, all of them by position."""
    assert not kwargs and _name(function) in _known, _name(function)
    return Question(_name(function), args)


def asked_later(
    function: Callable[Concatenate[Target, V, P], Awaitable[T]], *args: P.args, **kwargs: P.kwargs
) -> Question[T]:
    """`asked`, without the first argument, which is not known yet."""
    assert not kwargs and _name(function) in _known, _name(function)
    return Question(_name(function), args)


def _name(function: Callable[..., object]) -> str:
    return f"{function.__module__}.{function.__qualname__}"
