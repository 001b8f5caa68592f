"""Structured arrays that grow, whose addresses the world holds."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Rows", "address_of"]

Array = npt.NDArray[Any]


def address_of(array: Array) -> int:
    """Return where an array's memory begins."""
    return int(array.__array_interface__["data"][0])


class Rows:
    """A structured array to which rows can be added.

    Parameters
    ----------
    world : WORLD array, one element
        Where the address is kept.
    field : str
        The world's field for it.
    kind : dtype
        Of a row.
    """

    def __init__(self, world: Array, field: str, kind: np.dtype[Any]) -> None:
        self._world = world
        self._field = field
        self._rows = np.zeros(8, kind)
        self.count = 0
        world[field] = address_of(self._rows)

    def __len__(self) -> int:
        return self.count

    @property
    def rows(self) -> Array:
        """The rows there are; a view that is valid until one is added."""
        return self._rows[: self.count]

    def __getitem__(self, number: int) -> Any:
        return self._rows[number]

    def add(self, **values: int) -> int:
        """Add a row; fields that are not named are 0. Returns its number."""
        return self.extend(1, **values)

    def extend(self, count: int, **values: Any) -> int:
        """Add rows, of which each value may be an array; returns the number of the first."""
        first, need = self.count, self.count + count
        if need > len(self._rows):
            grown = np.zeros(max(need, 2 * len(self._rows)), self._rows.dtype)
            grown[:first] = self._rows[:first]
            self._rows = grown
            self._world[self._field] = address_of(grown)
        for name, value in values.items():
            self._rows[name][first:need] = value
        self.count = need
        return first
