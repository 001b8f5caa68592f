"""The switch: a compiled program, its memory, the packets that run through it, and its state as a whole."""

import copy
import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sim.switch import ir
from sim.switch.control_plane import ControlPlane
from sim.switch.flight import Flight
from sim.switch.layout import CONTEXT, Context
from sim.switch.lending import Counts, Lending
from sim.switch.machine import compile_program
from sim.switch.packets import Packets
from sim.switch.saved_state import Digest, SwitchState, shared_parts
from sim.switch.table_layout import words

__all__ = ["Digest", "Switch", "SwitchState"]

# A packet goes round (clone, resubmit, recirculate) a bounded number of times, and causes a bounded number of steps (one pass
# through ingress, or one replica through egress); packets beyond are dropped and counted as `dropped_looping`.
PASSES_LIMIT = 256
STEPS_LIMIT = 16384
_identities = itertools.count()
_STATISTICS = CONTEXT[CONTEXT.index("dropped_ingress") :]
_KEPT_WORDS = ("groups", "sessions", "replicas", "random", "steps_limit", "passes_limit")


class Switch(ControlPlane):
    """A running v1model program.

    Calls may come from any thread; they run one after the other.

    Parameters
    ----------
    cache_dir
        Where compiled code is kept; by default ``$NETSUM_CACHE_DIR`` or the platform's cache directory.
    seed
        Of the random numbers that the program draws.
    like
        A switch that runs the same program: its machine code and layout are shared instead of made anew.
    """

    _context: Context
    _flight: Flight

    def __init__(
        self,
        program: ir.Program,
        cache_dir: str | PathLike[str] | None = None,
        *,
        seed: int = 1,
        like: "Switch | None" = None,
    ) -> None:
        if like is not None and like.program is not program:
            raise ValueError("like: expected a switch that runs the same program")
        context = Context(program) if like is None else like._context
        machine = compile_program(program, cache_dir) if like is None else like._flight.machine
        super().__init__(program, context)
        self._context = context
        self._flight = Flight(program, machine, context)
        self._words = self._flight.words
        self._digests: list[Digest] = []
        self._identity = next(_identities)
        self._snapshot: tuple[int, Any] | None = None
        self._set("random", (seed * 0x9E3779B97F4A7C15 + 1) & (1 << 63) - 1 or 1)
        self._set("passes_limit", PASSES_LIMIT)
        self._set("steps_limit", STEPS_LIMIT)

    def _set(self, name: str, value: int) -> None:
        self._words[self._context.words[name]] = value

    @property
    def cached(self) -> bool:
        """Whether the machine code came from the cache."""
        return self._flight.machine.cached

    @property
    def statistics(self) -> dict[str, int]:
        """Packets dropped since the switch started, by reason."""
        return {name: int(self._words[self._context.words[name]]) for name in _STATISTICS}

    # Packets.

    def inject(self, packets: Packets, now_ns: int, *, copy: bool = True) -> Packets:
        """Run a batch through the switch.

        Parameters
        ----------
        packets
            What arrives, in order.
        now_ns
            The time, which the program sees in microseconds.
        copy
            If False, the result is a view of the switch's own memory, valid until the next call.

        Returns
        -------
        Packets
            What leaves, in order: all that the first packet caused, then all that the second did, ….
        """
        with self._lock:
            if self._dirty:
                self._sync()
            result = self._flight.run(packets, now_ns, copy=copy)
            self._collect_digests()
            return result

    @contextmanager
    def in_flight(self, rows: NDArray[np.uint8]) -> Iterator[Flight]:
        """Hold the switch for a caller that runs the machine code itself."""
        with self._lock:
            if self._dirty:
                self._sync()
            self._flight.make_room(*rows.shape)
            yield self._flight
            self._collect_digests()

    def lend(self, frame_bytes: int) -> Lending:
        """Return what others need to run the program with the present entries on registers of their own.

        `frame_bytes`: the longest frame that they will have.
        """
        with self._lock:
            if self._dirty:
                self._sync()
            flight = Flight(self.program, self._flight.machine, self._context)
            flight.make_room(1, frame_bytes)
            at, words = self._context.words, self._words.copy()
            kept = [at[name] for name in _KEPT_WORDS]
            words[: len(CONTEXT)] = flight.words[: len(CONTEXT)]
            words[kept] = self._words[kept]
            shared = [*self._replication.arrays(), *self._externs.rows()]
            own = [*flight.arrays(), *self._externs.meters.values()]
            counts = [Counts(name, array, None) for name, array in self._externs.counters.items()]
            for name, table in self._tables.items():
                shared += table.shared_arrays()
                own.append(table.meters)
                counts.append(Counts(name, table.counters, dict(table.entries)))
            self._lent += counts
            code, registers = self._flight.machine.code, self._externs.registers
            return Lending(code, self._context, words, shared, own, counts, registers)

    def end_lending(self, counts: list[Counts]) -> None:
        """Take the last counts of a program that was lent, and no more of them."""
        with self._lock:
            self._collect()
            self._lent = [each for each in self._lent if each not in counts]

    def _sync(self) -> None:
        profiles = any(p.dirty for p in self._profiles.values())
        for name, table in self._tables.items():
            if table.dirty or profiles:
                table.sync(self._words, self._context.tables[name].first)
        self._externs.sync(self._words)
        self._replication.sync(self._words, self._context.words)
        self._dirty = False

    def _collect_digests(self) -> None:
        at = self._context.words["digest_count"]
        if not self.program.digests or not self._words[at]:
            return
        for row in self._flight.digest_rows[: self._words[at]].tolist():
            name, fields = self.program.digests[row[0]]
            values, position = [], 1
            for _, width in fields:
                count = words(width)
                values.append(sum(row[position + n] << (64 * n) for n in range(count)))
                position += count
            self._digests.append(Digest(name, tuple(values)))
        self._words[at] = 0

    def drain_digests(self) -> list[Digest]:
        """Return the digests since the last call, oldest first."""
        with self._lock:
            drained, self._digests = self._digests, []
            return drained

    # State.

    def _arrays(self) -> list[NDArray[Any]]:
        direct = [a for t in self._tables.values() for a in (t.counters, t.meters)]
        return [*self._externs.arrays(), *direct]

    def counter_arrays(self) -> list[NDArray[np.uint64]]:
        """Return the program's counts, (packets, bytes) in each cell; views that are valid until entries change."""
        self._collect()
        direct = [each.counters for each in self._tables.values() if each.table.with_counters]
        return [*self._externs.counters.values(), *direct]

    def _control(self) -> Any:
        parts = (self._tables, self._profiles, self._replication, self._externs.vsets)
        # Program and IR are shared, not copied.
        return copy.deepcopy(parts, {id(self.program): self.program} | shared_parts(self.program))

    def save_state(self) -> SwitchState:
        """Return everything the switch holds: entries, groups, registers, counters, meters, pending digests."""
        with self._lock:
            if self._snapshot is None or self._snapshot[0] != self._version:
                self._snapshot = (self._version, self._control())
            arrays = tuple(a.copy() for a in self._arrays())
            random = int(self._words[self._context.words["random"]])
            return SwitchState(
                arrays, random, tuple(self._digests), self._snapshot[1], (self._identity, self._version)
            )

    def restore_state(self, state: SwitchState) -> None:
        """Restore a saved state; register views from before are invalid afterwards."""
        with self._lock:
            if state.control_version != (self._identity, self._version):
                shared = {id(self.program): self.program} | shared_parts(self.program)
                parts = copy.deepcopy(state.control, shared)
                self._tables, self._profiles, self._replication, self._externs.vsets = parts
                for table in self._tables.values():
                    table.dirty = True
                self._changed()
            for array, saved in zip(self._arrays(), state.arrays, strict=True):
                array[...] = saved
            self._set("random", state.random)
            self._digests = list(state.digests)
