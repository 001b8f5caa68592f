"""States of the explorer as states of the model of one switch.

What a state does not hold, the model's `took`, `misread` and `wrong`, the explorer compares itself whenever a worker accepts a
RESULT.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from sim.explore.engine import world as w
from sim.explore.work import SUMMED
from tests.proof.explored import Array, Explored
from tests.proof.logic import InStates, State, Term
from tests.proof.one_switch import Model, Rules

DISPUTED, NO_COLLECTIVE = 0, 1
_MARK_LANES, _DISPUTED = 1, 0xFFFFFFFF


def states(x: Explored) -> tuple[Model, State]:
    """Return the model of one switch with the elements of a scenario, and all its states."""
    scenario = x.scenario
    jobs, epochs, slots = scenario.jobs, scenario.epochs, scenario.slots
    n, hosts = x.count, scenario.hosts
    chunks = len(x.passes)
    rounds = 1 + max(x.slot_of(chunk)[1] for chunk in range(chunks))
    words = sorted({x.collective(p, owner) for p, _ in x.passes for owner in range(hosts * epochs)})
    numbers = {word: NO_COLLECTIVE + 1 + at for at, word in enumerate(words)}
    contents: dict[tuple[int, int], list[tuple[int, ...]]] = {}
    for _, owner, chunk, _, content in x.results:
        known = contents.setdefault((_epoch(x, owner), chunk), [])
        if len(content) > 1 and content not in known:
            known.append(content)
    for _, owner, chunk, _, content in x.results:
        known = contents[_epoch(x, owner), chunk]
        if not known or (len(content) == 1 and x.scenario.rounds[x.passes[chunk][0]].kind not in CUT):
            known += [content] * (content not in known)
    sizes = {
        "Worker": hosts, "Slot": jobs * slots, "Round": rounds, "Epoch": jobs * epochs,
        "Value": 1 + max(map(len, contents.values()), default=0),
        "Collective": 2 + len(words), "Number": 1 + jobs * epochs,
    }  # fmt: skip
    e, s, r = jobs * epochs, jobs * slots, rounds
    sent, got = np.zeros((n, e, hosts, s, r), bool), np.zeros((n, e, hosts, s, r), bool)
    stopped, admitted = np.zeros((n, e, hosts), bool), np.zeros((n, e, hosts), bool)
    result = np.zeros((n, e, s, r, sizes["Collective"], sizes["Value"]), bool)
    tables = x.states[:, w.AT_TABLES].astype(np.int64)
    restarted = x.states[:, w.AT_RESTARTS] != 0
    emptied = int(x.world.arrays["emptied"][0])
    current = np.stack([x.block(host, w.AT_EPOCH) for host in range(hosts)], 1)
    for host in range(hosts):
        job = host // scenario.workers
        for slot in range(slots):
            newest, waits = x.held(host, slot)
            for chunk in [c for c in range(chunks) if x.slot_of(c)[0] == slot]:
                where = (
                    slice(None),
                    slice(job * epochs, (job + 1) * epochs),
                    host,
                    job * slots + slot,
                    x.slot_of(chunk)[1],
                )
                here = current[:, host, None] == np.arange(epochs)
                sent[where] = here & (newest >= chunk)[:, None]
                got[where] = here & ((newest > chunk) | (newest == chunk) & ~waits)[:, None]
        for epoch in range(epochs):
            dead = (x.block(host, w.AT_LIFE) != w.ALIVE) | (current[:, host] > epoch)
            stopped[:, job * epochs + epoch, host] = dead
            stages = np.array(
                [host * epochs + epoch in stage.admitted for stage in x.system.stages[0].stages]
            )
            admitted[:, job * epochs + epoch, host] = stages[tables]
    if epochs > 1:
        x.remember(current, sent[:, 0], got[:, 0])
    for number, owner, chunk, word, content in x.results:
        known = contents[_epoch(x, owner), chunk]
        value = 1 + (known.index(content) if content in known else 0)
        slot, at_round = x.slot_of(chunk)
        flying = x.in_flight([number])
        chunk_at = (_epoch(x, owner), owner // epochs // scenario.workers * slots + slot, at_round)
        result[(slice(None), *chunk_at, numbers.get(word, NO_COLLECTIVE), value)] |= flying
    cells = {
        name: np.zeros((n, s, 2), np.int64)
        for name in ("number", "round", "collective", "lanes", "holder", "writer")
    }
    seen = np.zeros((n, s, 2, hosts), bool)
    once, twice = np.zeros((n, s, 2, hosts, e, r), bool), np.zeros((n, s, 2, hosts, e, r), bool)
    for job in range(jobs):
        for index in range(2 * job * slots, 2 * (job + 1) * slots):
            _read_cell(x, job, index, (contents, numbers, rounds), cells, seen, once, twice)
    begun = (tables >= emptied) if epochs > 1 else np.zeros(n, bool)
    ended = (tables > 0) if epochs > 1 else np.zeros(n, bool)
    first = np.arange(e) % epochs == 0
    issued = first | begun[:, None]
    functions: dict[str, Callable[..., Term]] = {
        name: InStates.function(values)
        for name, values in {
            "issued": issued, "ended": first & ended[:, None], "remembered": issued, "written": issued,
            "kept": np.where(first, ~restarted[:, None], issued), "admitted": admitted, "stopped": stopped,
            "sent": sent, "got": got,
            "moved": np.zeros_like(issued), "filled": got, "result": result, **cells, "seen": seen, "once": once, "twice": twice,
        }.items()
    }  # fmt: skip
    means = np.zeros((e, hosts, s, r), np.int64)
    for owner in range(hosts * epochs):
        for chunk in range(chunks):
            slot, at_round = x.slot_of(chunk)
            at = (
                _epoch(x, owner),
                owner // epochs,
                owner // epochs // scenario.workers * slots + slot,
                at_round,
            )
            means[at] = numbers[x.collective(x.passes[chunk][0], owner)]
    odd = (x.first_chunk // slots) % 2
    every = np.arange(n)
    fixed: dict[str, Callable[..., Term]] = {
        "owns": lambda a, b: a // epochs == b // slots,
        "member": lambda a, b: a // epochs == b // scenario.workers,
        "number_of": lambda a: 1 + a,
        "workers_of": lambda a: scenario.workers,
        "means": lambda *c: np.broadcast_to(means[tuple(np.broadcast_arrays(*c, every)[:4])], (n,)),
        "spares": lambda *c: True,
        "parity": lambda a: (a + odd) % 2 == 1,
        "before": lambda a, b: a < b,
    }
    return Model(InStates(sizes), Rules(), State(fixed), 0, DISPUTED, 0), State(functions)


CUT = frozenset(("reduce", "gather"))
"""Kinds of rounds in which a worker may ask for the header alone."""


def _epoch(x: Explored, owner: int) -> int:
    """Return the model's number of an owner's epoch: epochs of jobs are counted one after the other."""
    host, epoch = divmod(owner, x.scenario.epochs)
    return host // x.scenario.workers * x.scenario.epochs + epoch


def _read_cell(
    x: Explored,
    job: int,
    index: int,
    names: tuple[Any, dict[int, int], int],
    cells: dict[str, Array],
    seen: Array,
    once: Array,
    twice: Array,
) -> None:
    contents, numbers, rounds = names
    scenario = x.scenario
    at = (slice(None), index // 2, index % 2)
    read = {n: x.register(job, index, n, "u4") for n in ("epoch", "chunk", "collective", "seen", "0", "1")}
    cells["number"][at] = read["epoch"]
    holder = np.maximum(read["epoch"] - 1, 0)
    cells["holder"][at] = holder
    chunk = (read["chunk"] - x.first_chunk) & 0xFFFFFFFF
    used = (read["epoch"] != 0) & (chunk < len(x.passes))
    first = x.first_chunk & (scenario.slots - 1)
    cells["round"][at] = np.where(used, (first + chunk) // scenario.slots, 0)
    words = np.array([*numbers, _DISPUTED])
    ids = np.array([*numbers.values(), DISPUTED])
    order = np.argsort(words)
    place = np.minimum(np.searchsorted(words[order], read["collective"]), len(words) - 1)
    known = words[order][place] == read["collective"]
    cells["collective"][at] = np.where(known, ids[order][place], NO_COLLECTIVE)
    for bit in range(scenario.workers):
        seen[(*at, job * scenario.workers + bit)] = read["seen"] >> bit & 1 == 1
    lowest = read["seen"] & -read["seen"]
    cells["writer"][at] = job * scenario.workers + np.log2(np.maximum(lowest, 1)).astype(np.int64)
    has_lanes = x.register(job, index, "marks", "u1") & _MARK_LANES != 0
    for (epoch, number), held in contents.items():
        mine = used & (holder == epoch) & (chunk == number)
        for value, content in enumerate(held, 1):
            same = mine & x.holds(job, index, content)
            cells["lanes"][at] = np.where(same, value, cells["lanes"][at])
    _read_lanes(x, job, at, (used, holder, chunk, has_lanes, read["0"], read["1"]), rounds, once, twice)


def _source(x: Explored, owner: int, pass_number: int) -> Array:
    return x.system.tasks[owner][pass_number].work.source.view(np.uint32).astype(np.int64)


def _read_lanes(
    x: Explored,
    job: int,
    at: tuple[Any, ...],
    cell: tuple[Array, ...],
    rounds: int,
    once: Array,
    twice: Array,
) -> None:
    """Find whose contributions the lanes hold: every set of workers has a sum of its own in each pass."""
    used, holder, chunk, has_lanes, low, high = cell
    scenario = x.scenario
    found = np.zeros(x.count, bool)
    bits = np.zeros((x.count, scenario.workers), bool)
    whose, when = holder.copy(), np.zeros(x.count, np.int64)
    for epoch in range(scenario.epochs):
        for number, (pass_number, _) in enumerate(x.passes):
            if scenario.rounds[pass_number].kind not in _SUMMED:
                continue
            parts = [
                _source(x, (job * scenario.workers + each) * scenario.epochs + epoch, pass_number)
                for each in range(scenario.workers)
            ]
            for subset in range(1, 1 << scenario.workers):
                members = [each for each in range(scenario.workers) if subset >> each & 1]
                total = np.sum([parts[each] for each in members], axis=0) & 0xFFFFFFFF
                is_it = used & has_lanes & (low == total[0]) & (high == total[1]) & ~found
                found |= is_it
                bits[is_it] = [each in members for each in range(scenario.workers)]
                whose[is_it], when[is_it] = job * scenario.epochs + epoch, x.slot_of(number)[1]
    # Elsewhere the lanes do not tell whose they are: `seen` is believed.
    kinds = [scenario.rounds[number].kind in _SUMMED for number, _ in x.passes]
    tells = np.array([*kinds, False])[np.minimum(chunk, len(kinds))] & used
    seen = x.register(job, at[1] * 2 + at[2], "seen", "u4")
    held = np.array([seen >> each & 1 == 1 for each in range(scenario.workers)]).T
    bits = np.where((tells & found)[:, None], bits, held & ~(tells & has_lanes)[:, None])
    when = np.where(tells & found, when, np.where(used, x.slot_of(0)[1] + chunk // scenario.slots, 0))
    when = np.minimum(when, rounds - 1)
    every = np.arange(x.count)
    for worker in range(scenario.workers):
        host = job * scenario.workers + worker
        once[every, at[1], at[2], host, whose, when] = bits[:, worker] & used
    twice[:, at[1], at[2]] = (tells & has_lanes & ~found)[:, None, None, None]


_SUMMED = frozenset(("sum",)) & SUMMED
"""Kinds of rounds in which lanes tell whose contributions they hold."""

NOT_IN_STATES = frozenset(
    [
        "no RESULT is sent of other contributions", "no worker takes other contributions for a chunk",
        "lanes taken are those of a RESULT",
    ]
)  # fmt: skip
"""Sentences about what no state of the explorer holds; it compares each RESULT that a worker accepts with the right one."""
