"""Messages that depend on other messages: the description of a peer's collective and of the computing around it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from sim.network.engine.engine_records import CONTROLS, NEVER, PS_PER_NS, RING
from sim.network.engine.events import MESSAGE_READY, push
from sim.network.engine.flows import RING_ACKNOWLEDGED, TAKES_TURN, TO_PYTHON, WITHIN_HOST
from sim.network.engine.tcp import ALPHA_ONE, PER_PACKET

if TYPE_CHECKING:
    from sim.network.graph import Node
    from sim.network.network import Network

INITIAL_RTO_NS = 50_000_000
"""Retransmission timeout before the first round trip was measured: longer than any queue of these networks, but far below RFC
6298's second, which is meant for the Internet."""
_ENDLESS: Final = 1 << 50  # Bytes of a flow that does not end.
_FLOW_WINDOW: Final = 4096  # Packets of it that may be outstanding.
_LONGEST_NS: Final = 10**15  # Longer than any run; a longer delay would be no number of picoseconds.


@dataclass(frozen=True)
class TransportParameters:
    """Parameters of flows (`sim.network.engine.flows`)."""

    # segment_bytes, header_bytes, ack_bytes: bytes of a packet's data, of its headers, and of an acknowledgement.
    segment_bytes: int = 1448
    header_bytes: int = 66
    ack_bytes: int = 66
    # window, initial_window: the largest and the first number of packets that may be outstanding.
    window: int = 256
    initial_window: int = 10
    least_rto_ns: int = 5_000_000  # Minimum retransmission timeout.
    ack_every: int = 2  # Packets that are acknowledged together.


class Messages:
    """Messages between hosts; a message may wait for others."""

    def __init__(self, network: Network, transport: TransportParameters) -> None:
        self._network = network
        self._transport = transport
        self._flows: dict[tuple[int, int], int] = {}
        self._pairs: list[tuple[int, int]] = []
        self._flow: list[int] = []
        self._bytes: list[int] = []
        self._delay_ps: list[int] = []
        self._after: list[Sequence[int]] = []
        self._takes: dict[int, int] = {}
        self._frees: dict[int, int] = {}
        self._promised: set[int] = set()
        self._first = 0
        self._stall = network.stalls.add()

    def __len__(self) -> int:
        return len(self._flow)

    def send(
        self,
        source: Node,
        target: Node,
        size: int,
        after: Sequence[int] = (),
        delay_ns: int = 0,
        place: int = 0,
    ) -> int:
        """Send bytes from a host to another `delay_ns` after the messages `after` have been delivered.

        `place`: the place whose turn ends when the last byte has been sent; 0: none. Returns the message's number. Messages from
        one host to another arrive in the order in which they become ready.
        """
        flow = WITHIN_HOST
        if source.number != target.number:
            pair = source.number, target.number
            flow = self._flows.setdefault(pair, len(self._flows))
            if flow == len(self._pairs):
                self._pairs.append(pair)
        return self._add(flow, size, after, delay_ns, place)

    def wait(self, host: Node, after: Sequence[int] = (), delay_ns: int = 0, place: int = 0) -> int:
        """Let a host compute for a time after the messages `after`; `place`: the place whose turn ends then, 0 for none."""
        return self.send(host, host, 0, after, delay_ns, place)

    def add_place(self, line: int = 0) -> int:
        """Add a place where messages take turns, or a line in which they wait; return its number, from 1."""
        return self._network.places.add(line=line) + 1

    def acquire(self, place: int, free: int, after: Sequence[int]) -> int:
        """Take a turn at a place once the messages `after` are delivered and no message has a turn there or at the place `free`.

        For either place, 0 means none.
        """
        self._takes[len(self)] = place
        return self._add(TAKES_TURN, free, after)

    def call(self, after: Sequence[int], action: Callable[..., None], *arguments: Any) -> int:
        """Call a function when the messages `after` have been delivered."""
        return self._add(TO_PYTHON, self._network.control(action, *arguments), after)

    def promise(self) -> int:
        """Return the number of a message that is delivered only when `keep` says so."""
        self._promised.add(len(self))
        return self._add(WITHIN_HOST, 0)

    def keep(self, number: int, at_ps: int) -> None:
        """Deliver a promised message at a time."""
        self._network.reserve(1)
        push(self._network.world[0], at_ps, MESSAGE_READY, 0, self._first + number)

    def _add(self, flow: int, size: int, after: Sequence[int] = (), delay_ns: int = 0, place: int = 0) -> int:
        if place:
            self._frees[len(self)] = place
        self._flow.append(flow)
        self._bytes.append(size)
        self._delay_ps.append(min(delay_ns, _LONGEST_NS) * PS_PER_NS)
        self._after.append(after)
        return len(self._flow) - 1

    def install(self) -> None:
        """Put all messages into the network; those that wait for no other become ready after their delay."""
        network, count = self._network, len(self._flow)
        first_flow = self._add_flows()
        waits = np.array([len(after) for after in self._after], np.int64)
        sources = np.fromiter((each for after in self._after for each in after), np.int64, int(waits.sum()))
        targets = np.repeat(np.arange(count), waits)
        order = np.argsort(sources, kind="stable")
        successors = np.bincount(sources, minlength=count)
        flows = np.array(self._flow, np.int64)
        self._first = len(network.messages)
        offset = network.add_successors(targets[order] + self._first)
        network.messages.extend(
            count,
            flow=np.where(flows < 0, flows, flows + first_flow),
            bytes=np.array(self._bytes, np.int64),
            waits_for=waits,
            delay_ps=np.array(self._delay_ps, np.int64),
            first_successor=offset + np.concatenate([[0], np.cumsum(successors)[:-1]]) if count else 0,
            successor_count=successors,
            next=-1,
        )
        for name, places in (("last_number", self._takes), ("frees", self._frees)):
            rows = self._first + np.fromiter(places, np.int64, len(places))
            network.messages.rows[name][rows] = np.fromiter(places.values(), np.int64, len(places))
        world = network.world[0]
        world["messages_left"] += count
        world["messages_watched"] = 1
        now_ps = network.now_ps
        ready = [number for number in np.flatnonzero(waits == 0).tolist() if number not in self._promised]
        network.memory.need(int(successors.max(initial=0)))
        network.reserve(len(ready))
        for number in ready:
            push(world, now_ps + self._delay_ps[number], MESSAGE_READY, 0, self._first + number)

    def done_ps(self, numbers: npt.ArrayLike) -> npt.NDArray[Any]:
        """Return the times at which messages were delivered."""
        rows = self._network.messages.rows
        return np.asarray(rows["done_ps"][self._first + np.asarray(numbers, np.int64)])

    @property
    def stalled_ps(self) -> int:
        """Time during which at least one flow waited for a lost packet."""
        return int(self._network.stalls[self._stall]["total_ps"])

    def _add_flows(self) -> int:
        network, transport = self._network, self._transport
        room = network.flow_window(transport.window)
        window = min(transport.window, room) * PER_PACKET
        first = len(network.flows)
        for source, target in self._pairs:
            network.flows.add(
                source=source,
                target=target,
                segment_bytes=transport.segment_bytes,
                header_bytes=transport.header_bytes,
                ack_bytes=transport.ack_bytes,
                ack_every=transport.ack_every,
                sending=-1,
                last_message=-1,
                delivering=-1,
                stall=self._stall,
                window=min(transport.initial_window * PER_PACKET, window),
                threshold=NEVER // (4 * PER_PACKET),
                largest_window=window,
                rto_ps=max(transport.least_rto_ns, INITIAL_RTO_NS) * PS_PER_NS,
                least_rto_ps=transport.least_rto_ns * PS_PER_NS,
                epoch_ps=-1,
                least_rtt_ps=NEVER,
                alpha=ALPHA_ONE,
            )
        rings = np.zeros((len(network.flows), room), RING)
        rings["order"] = RING_ACKNOWLEDGED
        network.add_rings(rings)
        return first


def add_flow(
    network: Network, source: Node, target: Node, control: str, start_ns: int = 0, stop_ns: int = 10**12
) -> None:
    """Let a host send to another all that a congestion control of `engine_records.CONTROLS` allows; no run waits for its end."""
    messages = Messages(network, TransportParameters(window=_FLOW_WINDOW))
    messages.send(source, target, _ENDLESS, delay_ns=start_ns)
    messages.install()
    network.world["messages_left"] -= 1
    number = len(network.flows) - 1
    network.flows[number]["control"] = CONTROLS.index(control)

    def stop() -> None:
        network.flows[number]["end_number"] = network.flows[number]["next_number"]

    network.at(stop_ns, stop)
