"""The invariant, R1, R2 and R3 in every state that the explorer has found.

A state of the explorer is of the shipped program and worker core. The same sentences that are proven for any number of elements
are evaluated in all states at once.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from host_agent.wire.constants import HEADER_BYTES, KIND_CONTRIBUTE, KIND_RESULT
from host_agent.wire.header import Header
from sim.explore.engine import world as w
from sim.explore.engine.packing import quorum_chunk_at
from sim.explore.search import Search
from sim.frames import HEADERS_BYTES
from tests.proof import explored_one_switch, quorum_chunks, tree_lemmas, trees
from tests.proof.explored import Array, Explored, Missing
from tests.proof.invariant import GUARANTEES
from tests.proof.logic import InStates, State, Term

_MARK_FINAL, _HELD = 2, ("S1: no RESULT",)


def sentences_missing(search: Search) -> list[Missing]:
    """Return the sentences that some state of a search does not have, with a state each."""
    x = Explored(search)
    if x.scenario.quorum:
        invariants = [i for i in quorum_chunks.INVARIANTS if not i.name.startswith(_HELD)]
        return x.missing(*_quorum_chunks(x), invariants)
    if x.system.shape.switches > 1:
        found = [x.missing(*_tree(x, epoch), [*tree_lemmas.ROUNDS]) for epoch in range(x.scenario.epochs)]
        return [each for of_epoch in found for each in of_epoch]
    invariants = [i for g in GUARANTEES.values() for i in g.invariants]
    kept = [i for i in invariants if i.name not in explored_one_switch.NOT_IN_STATES]
    return x.missing(*explored_one_switch.states(x), kept)


def _as_functions(values: dict[str, Array]) -> State:
    return State({name: InStates.function(each) for name, each in values.items()})


def _fixed(**tables: Any) -> dict[str, Callable[..., Term]]:
    """Return functions that are the same in all states, by their values."""

    def read(table: Array) -> Callable[..., Term]:
        def at(*elements: Any) -> Any:
            found = table[tuple(elements)]
            return found.item() if np.ndim(found) == 0 else found

        return at

    return {name: read(np.asarray(table)) for name, table in tables.items()}


def _quorum_chunks(x: Explored) -> tuple[quorum_chunks.Model, State]:
    """Return the model of quorum chunks with the elements of a scenario, and all its states."""
    scenario, n, workers = x.scenario, x.count, x.scenario.workers
    chunks, slots = len(x.passes), x.scenario.slots
    rolls = np.array([scenario.rounds[number].kind == "quorum" for number, _ in x.passes])
    cells = [x.slot_of(c)[0] * 2 + x.slot_of(c)[1] % 2 for c in range(chunks)]
    began, got = np.zeros((n, workers, chunks), bool), np.zeros((n, workers, chunks), bool)
    sent = np.zeros((n, workers, chunks), bool)
    result, named = np.zeros((n, chunks), bool), np.zeros((n, chunks, workers), bool)
    unnamed = np.zeros((n, chunks, workers), bool)
    base = quorum_chunk_at(x.world.record[0], np.int64(0)) - w.HEAD_BYTES - x.world.get("switch_bytes")

    def says(chunk: int, where: Array, members: Array) -> None:
        result[:, chunk] |= where
        for worker in range(workers):
            is_member = members >> worker & 1 == 1
            named[:, chunk, worker] |= where & is_member
            unnamed[:, chunk, worker] |= where & ~is_member

    for worker in range(workers):
        for chunk, (number, _) in enumerate(x.passes):
            newest, waits = x.held(worker, x.slot_of(chunk)[0])
            began[:, worker, chunk] = newest >= chunk
            has = got[:, worker, chunk] = (newest > chunk) | (newest == chunk) & ~waits
            offered = x.block(worker, base + 2 * number) != 0
            sent[:, worker, chunk] = began[:, worker, chunk] & (offered | (not rolls[chunk]))
            added = x.block(worker, base + 2 * number + 1)
            says(chunk, has, added if rolls[chunk] else np.full(n, (1 << workers) - 1))
    for number, _, chunk, _, _ in x.results:
        members = (1 << workers) - 1
        if rolls[chunk]:
            at = HEADERS_BYTES + HEADER_BYTES
            members = int.from_bytes(x.world.arrays["packets"][number][at : at + 4].tobytes(), "big")
        says(chunk, x.in_flight([number]), np.full(n, members))
    kept = {name: np.zeros((n, 2 * slots), np.int64) for name in ("tag", "writer", "count")}
    used, complete = np.zeros((n, 2 * slots), bool), np.zeros((n, 2 * slots), bool)
    seen = np.zeros((n, 2 * slots, workers), bool)
    for cell in range(2 * slots):
        bits = x.register(0, cell, "seen", "u4")
        held = (x.register(0, cell, "chunk", "u4") - x.first_chunk) & 0xFFFFFFFF
        used[:, cell] = (x.register(0, cell, "epoch", "u4") != 0) & (held < chunks)
        kept["tag"][:, cell] = np.where(used[:, cell], held, 0)
        for worker in range(workers):
            seen[:, cell, worker] = bits >> worker & 1 == 1
        kept["count"][:, cell] = seen[:, cell].sum(axis=1)
        kept["writer"][:, cell] = seen[:, cell].argmax(axis=1)
        enough = np.where(rolls[kept["tag"][:, cell]], scenario.quorum, workers)
        complete[:, cell] = kept["count"][:, cell] >= enough
    once = seen[..., None] & (kept["tag"][..., None, None] == np.arange(chunks))
    never = np.zeros(n, bool)
    state = _as_functions({
        "written": ~never, "gone": never, "zeroed": never, "began": began, "sent": sent, "got": got, "result": result,
        "named": named, "unnamed": unnamed, "used": used, "complete": complete, "seen": seen, "once": once,
        "twice": np.zeros_like(once), **kept,
    })  # fmt: skip
    numbers = np.arange(chunks)
    apart = numbers - numbers[:, None]
    fixed = _fixed(before=apart > 0, next=apart == 1, frees=apart == slots, cell=cells, roll=rolls)
    logic = InStates({"Worker": workers, "Chunk": chunks, "Cell": 2 * slots})
    return quorum_chunks.Model(logic, State(fixed), 0, scenario.quorum), state


def _tree(x: Explored, epoch: int) -> tuple[trees.Model, State]:
    """Return the model of a tree with the elements of a scenario, and all its states, as one epoch sees them."""
    shape, scenario, n, hosts = x.system.shape, x.scenario, x.count, x.scenario.hosts
    switches, rounds, epochs = shape.switches, len(x.passes), scenario.epochs
    assert scenario.slots == 1
    nodes = switches + hosts
    above = {switches + host: leaf for host, leaf in enumerate(shape.leaves)}
    above |= dict(enumerate(shape.parents, 1))
    under, child = np.eye(nodes, dtype=bool), np.zeros((nodes, nodes), bool)
    toward, some = np.zeros((nodes, nodes), int), np.arange(nodes)
    for node in range(nodes):
        at = node
        while at in above:
            under[node, above[at]], toward[above[at], node] = True, at
            at = above[at]
        child[node, above.get(node, node)] = node in above
        some[node] = next(each for each in range(switches, nodes) if _is_under(above, each, node))
    sent, got = np.zeros((n, nodes, rounds), bool), np.zeros((n, nodes, rounds), bool)
    joined = np.stack([x.block(host, w.AT_EPOCH) for host in range(hosts)], 1)
    for host in range(hosts):
        newest, waits = x.held(host, 0)
        here = joined[:, host] == epoch
        for number in range(rounds):
            sent[:, switches + host, number] = here & (newest >= number)
            got[:, switches + host, number] = here & ((newest > number) | (newest == number) & ~waits)
    if epoch == 0:
        x.remember(joined, sent, got, switches)
    down = np.zeros((n, nodes, rounds), bool)
    down_is: dict[tuple[int, int, tuple[int, ...]], Any] = {}
    contents: list[list[tuple[int, ...]]] = [[] for _ in range(rounds)]
    for number, node, header, content in _between_switches(x, epoch):
        at_round = (header.chunk - x.first_chunk) & 0xFFFFFFFF
        flying = x.in_flight([number])
        if header.kind == KIND_CONTRIBUTE:
            sent[:, node, at_round] |= flying
            continue
        down[:, node, at_round] |= flying
        if len(content) > 1 and content not in contents[at_round]:
            contents[at_round].append(content)
        key = (node, at_round, content)
        down_is[key] = down_is.get(key, False) | flying
    for node in range(switches):
        leaves = [each for each in range(switches, nodes) if under[each, node]]
        if node:
            sent[:, node] |= got[:, leaves].all(axis=1)
        down[:, node] |= got[:, leaves].any(axis=1)
    for (_, at_round, content), _ in down_is.items():
        if not contents[at_round]:
            contents[at_round].append(content)
    values = 1 + max(1, *map(len, contents))
    says = np.zeros((n, nodes, rounds, values), bool)
    for (node, at_round, content), flying in down_is.items():
        known = contents[at_round]
        says[:, node, at_round, 1 + (known.index(content) if content in known else 0)] |= flying
    if epoch == 0:  # Packets of an epoch that workers have left are no longer in flight.
        for after in np.flatnonzero(joined.any(axis=1)):
            for past in (sent, down, says):
                past[after] |= past[x.search.arrays["parents"][after]]
    cells, seen = _cells_of_tree(x, epoch, contents, (nodes, rounds))
    every = np.arange(n)
    for s in range(1, switches):  # A chunk that has ended below is no longer in flight; the slot has it.
        for v in range(2):
            tag, value = cells["tag"][:, s, v], cells["lanes"][:, s, v]
            leaves = [each for each in range(switches, nodes) if under[each, s]]
            ended = (
                got[every[:, None], leaves, tag[:, None]].all(axis=1)
                & cells["final"][:, s, v]
                & cells["used"][:, s, v]
            )
            says[every[ended], 0, tag[ended], value[ended]] = True
    stages = x.system.stages
    numbers = [
        x.states[:, w.AT_TABLES if not s else w.AT_RESTARTS + s].astype(np.int64) for s in range(switches)
    ]
    has = [
        np.array([_has_entries(stage, epochs, epoch) for stage in stages[s].stages])[numbers[s]]
        for s in range(switches)
    ]
    written, gone = np.zeros((n, nodes), bool), np.zeros((n, nodes), bool)
    for s in range(switches):
        written[:, s] = (epoch == 0) | has[s]
        gone[:, s] = ~has[s] if epoch == 0 else False
    restarted = (x.states[:, w.AT_RESTARTS] != 0) & (epoch == 0)
    state = _as_functions(
        {
            "written": written, "gone": gone, "zeroed": restarted, "sent": sent, "got": got, "down": down, "down_is": says,
            "seen": seen, **cells,
        }
    )  # fmt: skip
    apart = np.arange(rounds) - np.arange(rounds)[:, None]
    odd = (np.arange(rounds) + x.first_chunk) % 2 == 1
    fixed = _fixed(
        before=apart > 0,
        parity=odd,
        leaf=np.arange(nodes) >= switches,
        child=child,
        under=under,
        toward=toward,
        some=some,
    )
    logic = InStates({"Node": nodes, "Round": rounds, "Value": values})
    return trees.Model(logic, State(fixed), 0, 0), state


def _is_under(above: dict[int, int], node: int, upper: int) -> bool:
    return node == upper or (node in above and _is_under(above, above[node], upper))


def _has_entries(stage: Any, epochs: int, epoch: int) -> bool:
    return any(sender % epochs == epoch for sender in stage.admitted)


def _between_switches(x: Explored, epoch: int) -> list[tuple[int, int, Header, tuple[int, ...]]]:
    """Return the RESULTs of switches and the sums that they send up: packet, switch, header, and exponent with lanes."""
    found: list[tuple[int, int, Header, tuple[int, ...]]] = []
    arrays, hosts = x.world.arrays, x.scenario.hosts
    for number in range(x.world.get("packet_count")):
        length, owner, port, way = (
            int(arrays["about"][number][n]) for n in ("length", "owner", "port", "way")
        )
        if not 0 <= owner < x.world.get("owners") or owner % x.scenario.epochs != epoch:
            continue
        datagram = arrays["packets"][number][HEADERS_BYTES:length].tobytes()
        header = Header.from_bytes(datagram)
        lower, upper = x.system.shape.ends(w.UP, port)
        if way == w.UP and header.kind == KIND_CONTRIBUTE and lower >= hosts:
            found.append((number, lower - hosts, header, ()))
        elif way == w.DOWN and header.kind == KIND_RESULT:
            found.append((number, upper - hosts, header, x.content(header, datagram)))
    return found


def _cells_of_tree(
    x: Explored, epoch: int, contents: list[list[tuple[int, ...]]], sizes: tuple[int, int]
) -> tuple[dict[str, Array], Array]:
    nodes, rounds = sizes
    n, switches = x.count, x.system.shape.switches
    cells = {name: np.zeros((n, nodes, 2), np.int64) for name in ("tag", "writer", "lanes")}
    used, final = np.zeros((n, nodes, 2), bool), np.zeros((n, nodes, 2), bool)
    seen = np.zeros((n, nodes, 2, nodes), bool)
    for switch in range(switches):
        part = x.system.placement.parts[switch][0][epoch]
        for index in range(2):
            at = (slice(None), switch, index)
            chunk = (x.register(0, index, "chunk", "u4", switch) - x.first_chunk) & 0xFFFFFFFF
            used[at] = (x.register(0, index, "epoch", "u4", switch) == part.epoch) & (chunk < rounds)
            cells["tag"][at] = np.where(used[at], chunk, 0)
            final[at] = x.register(0, index, "marks", "u1", switch) & _MARK_FINAL != 0
            bits = x.register(0, index, "seen", "u4", switch)
            for bit, child in enumerate(part.workers):
                node = (
                    switches + child.port if child.port < x.scenario.hosts else child.port - x.scenario.hosts
                )
                seen[(*at, node)] = bits >> bit & 1 == 1
            cells["writer"][at] = seen[at].argmax(axis=1)
            for number, known in enumerate(contents):
                held = [*enumerate(known, 1)]
                if x.scenario.rounds[x.passes[number][0]].kind in explored_one_switch.CUT:
                    held += [(1, content[:1]) for content in known]
                for value, content in held:
                    same = used[at] & (chunk == number) & x.holds(0, index, content, switch)
                    cells["lanes"][at] = np.where(same, value, cells["lanes"][at])
    return {**cells, "used": used, "final": final}, seen
