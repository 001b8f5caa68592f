"""The packets of a schedule through BMv2, beside the embedded switch's answers."""

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from controller.p4runtime_writer import P4RuntimeWriter
from controller.program import CompiledFiles
from controller.session import P4RuntimeSession
from host_agent.wire.constants import HEADER_OFFSET_EXPONENT, KIND_PROBE, KIND_STATUS
from host_agent.wire.header import Header
from netsum.command_errors import CommandError
from netsum.programs import CompiledProgram
from sim.explore.engine.step_codes import LOSE
from sim.explore.engine.world import AT_RESTARTS, AT_TABLES, DEAD, DEAD_NUMBER, DOWN, NOTHING, UP
from sim.explore.scenario import ExplorerScenario
from sim.explore.story import Packet, StoryStep, Walk
from sim.explore.system import System
from sim.frames import HEADERS_BYTES
from tests.cabled_bmv2 import DEVICE_ID, CabledBmv2, missing_for_cabled_bmv2
from topologies.children import TestbedError
from topologies.topology import CPU_PORT

_TIMEOUT_S = 60.0
_SETTLE_S = 0.02  # How long to wait for an answer too many.
_NUMBER_AT = HEADERS_BYTES + HEADER_OFFSET_EXPONENT


@dataclass(frozen=True)
class Answers:
    """Both switches' answers to one packet."""

    packet: Packet  # The packet that arrived at the switch.
    # embedded, bmv2: (port, frame) of the answers, sorted; the number of a PROBE is zero in them.
    embedded: tuple[tuple[int, bytes], ...]
    bmv2: tuple[tuple[int, bytes], ...]


def require_bmv2(scenario: ExplorerScenario) -> None:
    """See that BMv2 can run a schedule here; `CommandError` if it cannot; the message says why."""
    if scenario.parents:
        raise CommandError("--bmv2 compares one switch, and this schedule is of a tree of switches")
    missing = missing_for_cabled_bmv2()
    if missing is not None:
        raise CommandError(missing)


def answers_of_bmv2(system: System, program: CompiledProgram, made: Sequence[StoryStep]) -> Iterator[Answers]:
    """Make the steps of a schedule, and give BMv2 every packet that arrives at the switch.

    `system`: of the schedule's scenario; BMv2 runs its program. `program`: the shipped program, whose names of tables it
    has. Raises CommandError if BMv2 does not start, or ends.
    """
    walk = Walk(system)
    state = system.world.arrays["state"]
    try:
        with _bmv2(system, program) as switch:
            for step in made:
                before = int(state[AT_TABLES]), int(state[AT_RESTARTS])
                event = walk.make(step)
                if event is None or event.result == NOTHING:
                    continue
                after = int(state[AT_TABLES]), int(state[AT_RESTARTS])
                if after != before:
                    switch.set_tables(after[0], restarted=after[1] != before[1])
                packet = step.packet
                if packet is not None and packet.way == UP and step.kind != LOSE:
                    expected = tuple(sorted((each.host, _without_number(each.frame)) for each in event.sent))
                    yield Answers(packet, expected, switch.answers(packet, len(expected)))
                if event.result < 0:
                    return
    except TestbedError as error:
        raise CommandError(str(error)) from None


class _Bmv2:
    """BMv2 with the scenario's program and entries."""

    def __init__(self, system: System, switch: CabledBmv2, writer: P4RuntimeWriter) -> None:
        self._stages = system.stages[0].stages
        self._switch, self._writer = switch, writer
        self.set_tables(0, restarted=True)

    def set_tables(self, version: int, *, restarted: bool) -> None:
        """Bring the tables to a version; a restarted switch has lost entries and registers."""
        if restarted:
            self._writer.set_pipeline()
            self._made = 0
        changes = self._stages[version].changes
        for change in changes[self._made :]:
            change(self._writer)
        self._made = len(changes)

    def answers(self, packet: Packet, count: int) -> tuple[tuple[int, bytes], ...]:
        """Send a packet; returns its answers: at least this many, unless fewer come within the time limit."""
        self._switch.send(packet.host, _with_number(packet))
        found: list[tuple[int, bytes]] = []
        deadline = time.monotonic() + _TIMEOUT_S
        while len(found) < count and time.monotonic() < deadline:
            found += self._switch.receive(0.2)
            self._switch.require_running()
        while more := self._switch.receive(_SETTLE_S):
            found += more
        return tuple(sorted((port, _without_number(frame)) for port, frame in found))


@contextmanager
def _bmv2(system: System, program: CompiledProgram) -> Iterator[_Bmv2]:
    files = CompiledFiles(system.program_file, program.p4info)
    switch = CabledBmv2(system.scenario.hosts, CPU_PORT)
    try:
        session = P4RuntimeSession(switch.address, DEVICE_ID, 1, _TIMEOUT_S)
        try:
            yield _Bmv2(system, switch, P4RuntimeWriter(session, files))
        finally:
            session.tear_down()
    finally:
        switch.close()


def _with_number(packet: Packet) -> bytes:
    """Return a packet's frame with a number in place of its label."""
    if packet.label == 0:
        return packet.frame
    number = DEAD_NUMBER if packet.label == DEAD else packet.label
    return packet.frame[:_NUMBER_AT] + number.to_bytes(2, "big") + packet.frame[_NUMBER_AT + 2 :]


def compare_bmv2(system: System, program: CompiledProgram, made: Sequence[StoryStep]) -> bool:
    """Run a schedule's packets through BMv2; returns whether it answers as the embedded switch does."""
    packets = answers = 0
    for each in answers_of_bmv2(system, program, made):
        packets, answers = packets + 1, answers + len(each.embedded)
        if each.embedded != each.bmv2:
            print(f"BMv2 answers packet {packets} ({each.packet.text()}) otherwise:")
            for switch, frames in (("embedded", each.embedded), ("BMv2", each.bmv2)):
                sent = [f"to port {port}: {Packet(DOWN, port, frame, 0).text()}" for port, frame in frames]
                print(f"  {switch}: {', '.join(sent) or 'nothing'}")
            return False
    print(f"BMv2: {packets} packets, {answers} answers, each the same bytes as the embedded switch's")
    return True


def _without_number(frame: bytes) -> bytes:
    """Return a frame with zero for the number of a PROBE that it repeats."""
    if Header.from_bytes(frame[HEADERS_BYTES:]).kind not in (KIND_PROBE, KIND_STATUS):
        return frame
    return frame[:_NUMBER_AT] + bytes(2) + frame[_NUMBER_AT + 2 :]
