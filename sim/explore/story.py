"""A path through the states in words: each packet or timer, and the reactions of switch and workers."""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from host_agent.wire.constants import (
    FLAG_LANES,
    FLAG_MISMATCH,
    HEADER_BYTES,
    KIND_CONTRIBUTE,
    KIND_PROBE,
    KIND_RESULT,
    KIND_STATUS,
)
from host_agent.wire.header import Header
from sim.explore.engine import step_codes as codes
from sim.explore.engine.packing import unpack
from sim.explore.engine.steps import apply
from sim.explore.engine.symmetry import image_of, stand_in
from sim.explore.engine.worker_steps import timers_of
from sim.explore.engine.world import CHANGED, DEAD, DOWN, LABEL_SHIFT, NOTHING, PACKET_SHIFT, TO_WORKER, UP
from sim.explore.shape import ScenarioShape
from sim.explore.system import System
from sim.frames import HEADERS_BYTES

_KINDS = {
    KIND_CONTRIBUTE: "CONTRIBUTE",
    KIND_RESULT: "RESULT",
    KIND_PROBE: "PROBE",
    KIND_STATUS: "STATUS",
}
STEP_NAMES = {
    codes.DELIVER: "deliver",
    codes.KEEP: "deliver and keep",
    codes.LOSE: "lose",
    codes.DRIVE: "send",
    codes.BEGIN: "begin",
    codes.OFFER: "offer",
    codes.KILL: "kill",
    codes.FAIL: "deadline",
    codes.JOIN: "join",
    codes.CONTROL: "control",
    codes.RESTART: "restart",
}


@dataclass(frozen=True)
class Packet:
    """A packet in flight."""

    way: int  # UP, towards the root, or DOWN.
    # The port that it goes by: the host at its other end, or the number of hosts + the lower one of two switches.
    host: int
    frame: bytes  # From the Ethernet header on, without the number of a PROBE.
    label: int  # The label of that number.

    def same_as(self, other: "Packet") -> bool:
        """Whether it is another one but for its label."""
        return (self.way, self.host, self.frame) == (other.way, other.host, other.frame)

    def text(self) -> str:
        """Describe it in a few words."""
        datagram = self.frame[HEADERS_BYTES:]
        if len(datagram) < HEADER_BYTES:
            return f"{len(datagram)} bytes"
        header = Header.from_bytes(datagram)
        text = f"{_KINDS.get(header.kind, 'kind ' + str(header.kind))} chunk {header.chunk}"
        if header.kind in (KIND_CONTRIBUTE, KIND_RESULT):
            if header.flags & FLAG_LANES:
                lane = int.from_bytes(datagram[HEADER_BYTES : HEADER_BYTES + 4], "big", signed=True)
                text += f" [{lane}, …]"
            if header.exponent:
                text += f" exponent {header.exponent}"
            if header.quorum:
                text += " of a quorum chunk"
            if header.quorum and header.kind == KIND_RESULT:
                added = int.from_bytes(datagram[HEADER_BYTES : HEADER_BYTES + 4], "big")
                text += f", contributors {_numbers(added)}"
        elif header.kind == KIND_STATUS and len(datagram) >= HEADER_BYTES + 8:
            seen = int.from_bytes(datagram[HEADER_BYTES : HEADER_BYTES + 4], "big")
            held = int.from_bytes(datagram[HEADER_BYTES + 4 : HEADER_BYTES + 8], "big")
            text += f" seen {_numbers(seen)} of chunk {held}"
            if header.flags & FLAG_MISMATCH:
                text += " MISMATCH"
        return text


def _numbers(workers: int) -> str:
    return ",".join(str(w) for w in range(32) if workers >> w & 1) or "none"


@dataclass(frozen=True)
class StoryStep:
    """A step that does not depend on where in a list a packet stands."""

    kind: int
    host: int = 0
    how: int = 0
    packet: Packet | None = None


@dataclass(frozen=True)
class StoryEvent:
    """A step and its result: `sent` are the packets that left, `result` what `apply` returned."""

    step: StoryStep
    sent: tuple[Packet, ...]
    result: int
    text: str = field(compare=False, default="")


class Walk:
    """Makes steps in a system, one after the other, from the root."""

    def __init__(self, system: System) -> None:
        self.system = system
        self.world = system.world
        self._blank = np.int64(system.blank.ctypes.data)
        fixed = self.world.get("fixed_bytes")
        state = self.world.arrays["state"]
        state[: system.root.size] = system.root
        self.world.put(entry_count=int(np.count_nonzero(system.root[fixed:].view(np.uint32))))

    def entries(self) -> list[int]:
        """Return the packets in flight, as entries."""
        fixed, count = self.world.get("fixed_bytes"), self.world.get("entry_count")
        return [int(e) for e in self.world.arrays["state"][fixed:].view(np.uint32)[:count]]

    def packet(self, entry: int) -> Packet:
        """Return the packet of an entry."""
        arrays, number = self.world.arrays, entry >> PACKET_SHIFT
        about = arrays["about"][number]
        frame = arrays["packets"][number, : about["length"]].tobytes()
        return Packet(int(about["way"]), int(about["port"]), frame, entry >> LABEL_SHIFT & 15)

    def step_of(self, code: int) -> StoryStep:
        """Return the step that a code means now."""
        kind, what, how = code >> codes.KIND_SHIFT, code >> codes.WHAT_SHIFT & codes.WHAT, code & codes.HOW
        if kind in (codes.DELIVER, codes.KEEP, codes.LOSE):
            packet = self.packet(self.entries()[what])
            return StoryStep(kind, packet.host, how, packet)
        return StoryStep(kind, what, how)

    def make(self, step: StoryStep) -> StoryEvent | None:
        """Make a step; None if its packet is not in flight."""
        what, how = step.host, step.how
        if step.packet is not None:
            packets = [self.packet(entry) for entry in self.entries()]
            found = [at for at, packet in enumerate(packets) if packet == step.packet]
            if not found:  # with another label, on another way
                found = [at for at, packet in enumerate(packets) if packet.same_as(step.packet)]
                how |= codes.ANSWERED if step.packet.label == DEAD and step.packet.way == DOWN else 0
            if not found:
                return None
            what = found[0]
        world = self.world
        origin, state = world.arrays["from_state"], world.arrays["state"]
        origin[:] = state
        world.put(from_count=world.get("entry_count"))
        world.arrays["tx_lengths"][:] = 0
        world.arrays["contexts"][:, world.get("out_count")] = 0
        code = np.int64(codes.step_code(step.kind, what, how))
        result = int(apply(self.system.record, code, self._blank))
        return StoryEvent(step, tuple(self._sent(step)), result)

    def permuted(self, step: StoryStep, which: int) -> StoryStep:
        """Return a step under a permutation, given by its row."""
        if which == 0:  # As always where switches have steps and ports.
            return step
        packet, world = step.packet, self.world
        if packet is not None:
            numbers = range(world.get("packet_count"))
            number = next(each for each in numbers if self.packet(each << PACKET_SHIFT).same_as(packet))
            image = int(image_of(self.system.record, np.int64(which), np.int64(number)))
            packet = self.packet(image << PACKET_SHIFT | packet.label << LABEL_SHIFT)
        return replace(step, host=int(world.arrays["places"][which, step.host]), packet=packet)

    def _sent(self, step: StoryStep) -> list[Packet]:
        arrays, world, shape = self.world.arrays, self.world, self.system.shape
        packets = []
        switch = shape.goes_to(step.packet.way, step.packet.host) if step.packet is not None else TO_WORKER
        if switch != TO_WORKER and step.kind != codes.LOSE:
            for context in arrays["contexts"]:
                for row in range(int(context[world.get("out_count")])):
                    frame = arrays["out_frames"][row, : arrays["out_lengths"][row]].tobytes()
                    port = int(arrays["out_ports"][row])
                    way = UP if port == shape.hosts + switch else DOWN
                    packets.append(Packet(way, port, frame, 0))
        else:
            headers = arrays["headers"][step.host]
            for row, length in enumerate(arrays["tx_lengths"].tolist()):
                if length:
                    front = headers[0 if length == HEADER_BYTES else 1].tobytes()
                    datagram = arrays["tx"][row, :length].tobytes()
                    packets.append(Packet(UP, step.host, front + datagram, 0))
        return packets

    def saturation(self) -> list[StoryStep]:
        """Return the steps that `SATURATE` stands for now, and make it."""
        world, state = self.world, self.world.arrays["state"]
        fixed, start, count = world.get("fixed_bytes"), state.copy(), world.get("entry_count")
        self.make(StoryStep(codes.SATURATE))
        end, end_count = state.copy(), world.get("entry_count")
        state[:] = start
        world.put(entry_count=count)
        made = []
        for host in range(self.system.scenario.hosts):
            record = self.system.record
            armed = int(timers_of(record, unpack(record, np.int64(host))))
            drives = [
                StoryStep(codes.DRIVE, host, chosen)
                for chosen in range(armed, -1, -1)
                if chosen & ~armed == 0
            ]
            made += [step for step in drives if self._adds(step, fixed)]
        packets = [self.packet(entry) for entry in self.entries()]
        shape = self.system.shape
        deliveries = [
            StoryStep(codes.DELIVER, packet.host, 0, packet)
            for packet in packets
            if shape.goes_to(packet.way, packet.host) != TO_WORKER
        ]
        made += [step for step in deliveries if self._adds(step, fixed)]
        state[:] = end
        world.put(entry_count=end_count)
        return made

    def _adds(self, step: StoryStep, fixed: int) -> bool:
        """Make a step if it changes nothing but the packets in flight; returns whether it does."""
        state, count = self.world.arrays["state"].copy(), self.world.get("entry_count")
        event = self.make(step)
        same = np.array_equal(self.world.arrays["state"][:fixed], state[:fixed])
        if event is not None and event.result == CHANGED and same:
            return True
        self.world.arrays["state"][:] = state
        self.world.put(entry_count=count)
        return False


def steps_of(system: System, way: tuple[int, ...]) -> list[StoryStep]:
    """Return the steps of a way, one for each packet.

    The search has made each step of the way from a state that stands for the one before it. The steps that are returned
    follow each other.
    """
    walk = Walk(system)
    made: list[StoryStep] = []
    places, origins = (system.world.arrays[name] for name in ("places", "origins"))
    now = places[0]  # The worker of the schedule for each worker of the walk.
    for code in way:
        which = int(np.flatnonzero((places == now).all(axis=1))[0])
        if code >> codes.KIND_SHIFT == codes.SATURATE:
            made += [walk.permuted(step, which) for step in walk.saturation()]
        else:
            step = walk.step_of(code)
            made.append(walk.permuted(step, which))
            walk.make(step)
        now = now[origins[stand_in(system.record)]]
    return made


def events_of(system: System, made: list[StoryStep]) -> list[StoryEvent]:
    """Make steps and return the event of each; those whose packets are not in flight are left out."""
    walk = Walk(system)
    events = []
    for step in made:
        event = walk.make(step)
        if event is None or event.result == NOTHING:
            continue
        events.append(event)
        if event.result < 0:
            break
    return events


def recorded_steps(events: list[StoryEvent], shape: ScenarioShape) -> list[dict[str, Any]]:
    """Return events as the window shows them (`controller.service.page.recorded_page`)."""
    steps = []
    for event in events:
        step, actor = event.step, event.step.host
        if step.kind in (codes.CONTROL, codes.RESTART):
            actor += shape.hosts
        ends = shape.ends(step.packet.way, step.packet.host) if step.packet is not None else (actor,)
        sent = [[shape.name(end) for end in shape.ends(each.way, each.host)] for each in event.sent]
        made = {
            "text": sentence(event, shape),
            "from": shape.name(ends[0]),
            "lost": step.kind == codes.LOSE,
            "sent": sent,
        }
        if len(ends) > 1:
            made |= {
                "to": shape.name(ends[1]),
                "short": step.packet.text() if step.packet is not None else "",
            }
        steps.append(made)
    return steps


def sentence(event: StoryEvent, shape: ScenarioShape) -> str:
    """Describe an event in a line; the shape names the switches."""
    step = event.step
    verb = STEP_NAMES[step.kind]
    if step.packet is not None:
        source, target = map(shape.name, shape.ends(step.packet.way, step.host))
        line = f"{verb}: {source} → {target}: {step.packet.text()}"
    elif step.kind in (codes.CONTROL, codes.RESTART):
        switch = "the " * (step.host == 0) + shape.name(shape.hosts + step.host)
        line = "the controller writes an entry" if step.kind == codes.CONTROL else f"{switch} restarts"
    else:
        line = f"worker {step.host}: {verb}"
    if step.how & codes.QUEUE:
        line += " (with a queue)"
    if step.how & codes.TIMERS & ~codes.QUEUE:
        line += " (timers fire)"
    if step.kind == codes.DELIVER and step.how & codes.TIRED:
        line += " (sent too often)"
    from_worker = step.packet is None or shape.goes_to(step.packet.way, step.host) == TO_WORKER
    sent = ", ".join(
        ("" if from_worker else f"to {shape.name(shape.ends(p.way, p.host)[1])}: ") + p.text()
        for p in event.sent
    )
    return line + (f"  ⇒ {sent}" if sent else "")
