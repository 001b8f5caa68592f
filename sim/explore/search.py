"""Runs a search: memory, progress, checkpoints, and the path to a finding."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from sim.explore.engine.expand import EXHAUSTED, FOUND, MORE_ROOM, check_parts, explore
from sim.explore.engine.fair import FAIR_ROUNDS
from sim.explore.engine.found_states import COUNTS, LEVELS, SEARCH, emit, part_bytes
from sim.explore.engine.visited import rehash
from sim.explore.system import System

_FIRST_STATES = 1 << 16
_FIRST_PARTS = 1 << 15
_FIRST_ARENA = 1 << 26
_BUDGET = 2000
_PARTS_BUDGET = 500
_ORDERS = ("breadth", "depth", "largest")

Order = Literal["breadth", "depth", "largest"]


@dataclass(frozen=True)
class SearchProgress:
    """How far a search is."""

    # states, expanded, steps: states found, those of which all steps were made, steps made.
    states: int
    expanded: int
    steps: int
    ends: int  # Different states without packets from which the end was reached.
    seconds: float  # Since the start, over all resumptions.
    memory: int  # Bytes that the search holds.


@dataclass(frozen=True)
class SearchResult:
    """How a search ended."""

    outcome: str  # "exhausted", "violated", "memory", or "paused".
    violation: int  # A code of `sim.explore.engine.world`, or 0.
    way: tuple[int, ...]  # Codes of the steps from the root to the finding.
    progress: SearchProgress


class Search:
    """A search through the states of a system.

    `order`: which state is expanded next: the oldest, which finds shortest ways; the newest; or of those with the least
    progress the one with the most packets in flight, which leaves out the most where packets may arrive any number of times.
    `liveness`: whether each state is checked to lead to the end. `reduce`: whether states that others can stand for are left
    out. `collect`: with `reduce`: whether packets that have no effect any more are left out (`sim.explore.engine.finished`).
    `symmetry`: whether one state stands for all that permutations of workers make of it (`sim.explore.engine.symmetry`).
    """

    def __init__(
        self,
        system: System,
        *,
        order: Order = "breadth",
        liveness: bool = True,
        reduce: bool = True,
        collect: bool = True,
        symmetry: bool = False,
        memory_bytes: int = 1 << 32,
    ) -> None:
        self.system = system
        self.memory_bytes = memory_bytes
        self.record = np.zeros(1, SEARCH)
        self.seconds = 0.0
        self.arrays: dict[str, npt.NDArray[Any]] = {}
        self._place("work", np.zeros(4, np.uint64))
        self._place("seen", np.zeros((FAIR_ROUNDS, 2), np.uint64))
        self._place("blank", system.blank)
        subsumes = reduce and system.scenario.copies == 0
        if order == "largest" and not subsumes:
            order = "depth"
        if order == "depth" and subsumes:
            order = "largest"
        self.order = order
        self._set(order=_ORDERS.index(order), liveness=liveness, subsume=subsumes)
        # Breadth first means shortest, which steps made ahead of others are not.
        system.world.put(reduce=subsumes and order == "largest", merge=subsumes, collect=reduce and collect)
        system.world.put(permutations=len(system.world.arrays["origins"]) if symmetry else 1)
        self._place("buckets", np.zeros((LEVELS, COUNTS), np.int64))
        self._place("tops", np.zeros(LEVELS, np.int64))
        self._place("keys", np.zeros((2 * _FIRST_STATES, 2), np.uint64))
        self._place("parents", np.zeros(_FIRST_STATES, np.uint32))
        self._place("codes", np.zeros(_FIRST_STATES, np.uint32))
        self._set(mask=2 * _FIRST_STATES - 1, capacity=_FIRST_STATES)
        self._place("ends", np.zeros((_FIRST_STATES, 3), np.uint64))
        self._set(ends_mask=_FIRST_STATES - 1)
        self._place("arena", np.zeros(_FIRST_ARENA, np.uint8))
        self._set(arena_bytes=_FIRST_ARENA)
        self._part_bytes = int(part_bytes(system.record))
        self._place("parts", np.zeros((_FIRST_PARTS, self._part_bytes), np.uint8))
        self._place("part_keys", np.zeros((4 * _FIRST_PARTS, 2), np.uint64))
        self._set(part_room=_FIRST_PARTS, part_mask=4 * _FIRST_PARTS - 1)
        self.load_root()
        emit(system.record, self.record[0], np.int64(0), np.int64(0))

    def _place(self, name: str, array: npt.NDArray[Any]) -> None:
        self.arrays[name] = array
        self.record[name] = array.ctypes.data

    def _set(self, **values: int) -> None:
        for name, value in values.items():
            self.record[name] = value

    def _get(self, name: str) -> int:
        return int(self.record[name][0])

    def load_root(self) -> None:
        """Make the root the state that is worked on."""
        world, root = self.system.world, self.system.root
        world.arrays["state"][: root.size] = root
        fixed = world.get("fixed_bytes")
        entries = root[fixed:].view(np.uint32)
        world.put(entry_count=int(np.count_nonzero(entries)))

    @property
    def progress(self) -> SearchProgress:
        """How far it is."""
        return SearchProgress(
            self._get("states"),
            self._get("expanded"),
            self.system.world.get("steps"),
            self._get("ends_count"),
            self.seconds,
            self.memory,
        )

    @property
    def memory(self) -> int:
        """Bytes of all arrays of the search."""
        return sum(array.nbytes for array in self.arrays.values())

    def run(
        self,
        report: Callable[[SearchProgress], bool] | None = None,
        until_s: float = float("inf"),
    ) -> SearchResult:
        """Search until everything is explored, something is violated, or memory or time has run out.

        `report`: called now and then; the search pauses when it returns False.
        """
        world, search = self.system.record, self.record[0]
        started, before = time.monotonic(), self.seconds
        while True:
            status = FOUND if self._get("found") else int(explore(world, search, np.int64(_BUDGET)))
            self.seconds = before + time.monotonic() - started
            if status == EXHAUSTED:
                status = int(check_parts(world, search, np.int64(_PARTS_BUDGET)))
                self.seconds = before + time.monotonic() - started
            if status == EXHAUSTED:
                return SearchResult("exhausted", 0, (), self.progress)
            if status == FOUND:
                return SearchResult("violated", self._get("found"), self.way(), self.progress)
            if status == MORE_ROOM and not self._grow():
                return SearchResult("memory", 0, (), self.progress)
            if self.seconds - before > until_s or (report is not None and not report(self.progress)):
                return SearchResult("paused", 0, (), self.progress)

    def way(self) -> tuple[int, ...]:
        """Return the codes of the steps from the root to the finding."""
        codes = [self._get("found_code")] if self._get("found_code") else []
        state = self._get("found_state")
        while state:
            codes.append(int(self.arrays["codes"][state]))
            state = int(self.arrays["parents"][state])
        return tuple(reversed(codes))

    def _grow(self) -> bool:
        """Enlarge full arrays; returns False if that would take more memory than allowed."""
        arena = self.arrays["arena"]
        # With `subsume`, records that were expanded are compared with new ones, so they stay.
        keep = self._get("subsume") or self._get("order") != 0
        head, tail = 0 if keep else self._get("head"), self._get("tail")
        worst = (1 << 20) + 1024 * (self.system.world.get("fixed_bytes") + 4200)
        if tail + worst > arena.nbytes:
            live = arena[head:tail]
            size = arena.nbytes
            while live.size + worst > size - size // 4:
                size *= 2
            if size == arena.nbytes:
                arena[: live.size] = live.copy()
            elif not self._fits(size):
                return False
            else:
                fresh = np.zeros(size, np.uint8)
                fresh[: live.size] = live
                self._place("arena", fresh)
                self._set(arena_bytes=size)
            self._set(head=self._get("head") - head, tail=live.size)
        if self._get("states") + 8192 > self._get("capacity"):
            capacity = 2 * self._get("capacity")
            if not self._fits(8 * capacity):
                return False
            for name in ("parents", "codes"):
                self._enlarge(name, capacity)
            self._set(capacity=capacity)
        # Hashes of states that others stand for are kept, too.
        if (self._get("states") + self._get("subsumed")) * 4 + 65536 > 3 * self._get("mask"):
            size = 2 * (self._get("mask") + 1)
            if not self._fits(16 * size):
                return False
            self._enlarge("keys", size, hashed=True)
            self._set(mask=size - 1)
        if self._get("part_count") + 16384 > self._get("part_room"):
            room = 2 * self._get("part_room")
            if not self._fits(room * (self._part_bytes + 64)):
                return False
            self._enlarge("parts", room)
            self._enlarge("part_keys", 4 * room, hashed=True)
            self._set(part_room=room, part_mask=4 * room - 1)
        if self._get("ends_count") * 2 + 16384 > self._get("ends_mask"):
            size = 2 * (self._get("ends_mask") + 1)
            if not self._fits(size * 24):
                return False
            self._enlarge("ends", size, hashed=True)
            self._set(ends_mask=size - 1)
        return True

    def _enlarge(self, name: str, rows: int, *, hashed: bool = False) -> None:
        """Give an array more rows; those of a hash table get new places."""
        old = self.arrays[name]
        grown = np.zeros((rows, *old.shape[1:]), old.dtype)
        if hashed:
            rehash(old, grown)
        else:
            grown[: len(old)] = old
        self._place(name, grown)

    def restore(self, arrays: dict[str, npt.NDArray[Any]], counts: dict[str, int], seconds: float) -> None:
        """Take the arrays and counts of a search that was saved in place of the present ones."""
        capacity = _FIRST_STATES
        while capacity < len(arrays["codes"]) + 16384:
            capacity *= 2
        size = _FIRST_ARENA
        while size < 2 * arrays["arena"].size + (1 << 24):
            size *= 2
        for name, array in arrays.items():
            self._place(name, array)
        room = len(arrays["part_keys"]) // 4
        for name, rows in (("arena", size), ("parents", capacity), ("codes", capacity), ("parts", room)):
            self._enlarge(name, rows)
        self._set(
            arena_bytes=size,
            capacity=capacity,
            mask=len(arrays["keys"]) - 1,
            ends_mask=len(arrays["ends"]) - 1,
            part_room=room,
            part_mask=4 * room - 1,
            **counts,
        )
        self.seconds = seconds

    def _fits(self, more: int) -> bool:
        return self.memory + more <= self.memory_bytes
