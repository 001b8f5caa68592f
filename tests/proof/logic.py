"""One text of a model, read in three ways: about any number of elements, about a few, and about a few in many states at once.

Terms are Z3's expressions in the first reading, Python's numbers and booleans in the second one, and NumPy's arrays with an
element a state in the third one.
"""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import z3

Term = Any
"""An expression of Z3, a value, or an array of values."""

BOOL = "Bool"
Signature = tuple[tuple[str, ...], str]
"""Names of the sorts of a function's arguments, and of its values."""


def conj(*terms: Term) -> Term:
    """Return whether all hold."""
    open_terms = [term for term in terms if term is not True]
    if any(term is False for term in open_terms):
        return False
    if open_terms and isinstance(open_terms[0], np.ndarray):
        return np.logical_and.reduce(open_terms)
    return z3.And(*open_terms) if open_terms else True


def disj(*terms: Term) -> Term:
    """Return whether one holds."""
    open_terms = [term for term in terms if term is not False]
    if any(term is True for term in open_terms):
        return True
    if open_terms and isinstance(open_terms[0], np.ndarray):
        return np.logical_or.reduce(open_terms)
    return z3.Or(*open_terms) if open_terms else False


def neg(term: Term) -> Term:
    """Return whether a term does not hold."""
    if isinstance(term, np.ndarray):
        return ~term
    return (not term) if isinstance(term, bool) else z3.Not(term)


def implies(premise: Term, conclusion: Term) -> Term:
    """Return whether the conclusion holds if the premise does."""
    return disj(neg(premise), conclusion)


def ite(condition: Term, yes: Term, no: Term) -> Term:
    """Return one of two terms."""
    if isinstance(condition, bool):
        return yes if condition else no
    if isinstance(condition, np.ndarray):
        return np.where(condition, yes, no)
    return z3.If(condition, yes, no)


def same(some: tuple[Term, ...], others: tuple[Term, ...]) -> Term:
    """Return whether two tuples are equal, term by term."""
    return conj(*(one == other for one, other in zip(some, others, strict=True)))


class Symbolic:
    """Any number of elements: sorts that nothing is known about."""

    def __init__(self) -> None:
        self._sorts: dict[str, Any] = {BOOL: z3.BoolSort(), "Int": z3.IntSort()}
        self._count = itertools.count()

    def sort(self, name: str) -> Any:
        """Return a sort."""
        if name not in self._sorts:
            self._sorts[name] = z3.DeclareSort(name)
        return self._sorts[name]

    def constant(self, sort: str, name: str = "c") -> Term:
        """Return a new constant."""
        return z3.Const(f"{name}!{next(self._count)}", self.sort(sort))

    def function(self, name: str, signature: Signature) -> Callable[..., Term]:
        """Return a function that nothing is known about."""
        arguments, values = signature
        return z3.Function(name, *(self.sort(a) for a in arguments), self.sort(values))  # type: ignore[no-any-return]

    def forall(self, sorts: tuple[str, ...], body: Callable[..., Term]) -> Term:
        """Return whether a body holds for all elements. A boolean is replaced by its two values."""
        if not sorts:
            return body()
        if BOOL in sorts:
            at = sorts.index(BOOL)
            rest = sorts[:at] + sorts[at + 1 :]

            def both(*others: Term) -> Term:
                return conj(*(body(*others[:at], z3.BoolVal(value), *others[at:]) for value in (False, True)))

            return self.forall(rest, both) if rest else both()
        variables = [self.constant(sort, "v") for sort in sorts]
        term = body(*variables)
        return term if isinstance(term, bool) else z3.ForAll(variables, term)


@dataclass
class Finite:
    """A few elements of each sort, numbered from 0."""

    sizes: dict[str, int]

    def elements(self, sort: str) -> range | tuple[bool, bool]:
        """Return the elements of a sort."""
        return (False, True) if sort == BOOL else range(self.sizes[sort])

    def tuples(self, sorts: tuple[str, ...]) -> Iterator[tuple[Any, ...]]:
        """Iterate over the tuples of elements."""
        return itertools.product(*map(self.elements, sorts))

    def forall(self, sorts: tuple[str, ...], body: Callable[..., Term]) -> Term:
        """Return whether a body holds for all elements."""
        return all(body(*elements) for elements in self.tuples(sorts))


class InStates(Finite):
    """A few elements of each sort, in many states at once."""

    def forall(self, sorts: tuple[str, ...], body: Callable[..., Term]) -> Term:
        """Return in which states a body holds for all elements."""
        return conj(*(body(*elements) for elements in self.tuples(sorts)))

    @staticmethod
    def function(values: npt.NDArray[Any]) -> Callable[..., Term]:
        """Return an array, with an element a state and the elements of a function's arguments, as that function."""
        every = np.arange(len(values))

        def read(*elements: Any) -> npt.NDArray[Any]:
            at = (np.asarray(e).astype(int) if isinstance(e, (bool, np.ndarray)) else e for e in elements)
            return np.broadcast_to(values[(every, *at)], (len(values),))

        return read


class State:
    """Functions by name."""

    def __init__(self, functions: dict[str, Callable[..., Term]]) -> None:
        self.functions = functions

    def __getattr__(self, name: str) -> Callable[..., Term]:
        return self.functions[name]

    def but(self, **changed: Callable[..., Term]) -> "State":
        """Return the state with some functions changed."""
        return State({**self.functions, **changed})
