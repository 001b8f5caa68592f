"""Workers that run the switch's program themselves, on registers that the job's workers share."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import random
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from controller.jobs import WorkerEndpoint
from host_agent.communicator import Communicator
from host_agent.errors import MissingWorkersError, SwitchSilentError
from host_agent.transport.in_place import fetch, free_rows, next_datagram, send
from host_agent.transport.in_place_link import borrower_of
from host_agent.wire import Admission
from host_agent.wire import constants as c
from host_agent.wire.header import Header
from netsum_common.frames import HEADER_BYTES, write_headers
from netsum_common.lent_program import LINE_BYTES, REFUSED, Borrowed, LendingRequest
from netsum_common.rings import AttachError, ask
from netsum_common.switch_options import UDP_PORT
from sim.switch import Packets
from sim.switch.ports.lending import Loan
from tests.integration.simulated.loopback import OWN_MAC, LoopbackSwitch, on_all
from tests.integration.simulated.star import StarSwitch, ip_at, mac_at
from tests.integration.test_shared_memory import eventually

DEADLINE_S = 60.0
NAMED_S = 3.0
"""A deadline that a busy machine does not pass before a worker is killed."""
WORKERS, SLOTS, LANES = 3, 4, 64
KILLS = int(os.environ.get("NETSUM_KILLS", "2"))
_fork = multiprocessing.get_context("fork")

VALUES = [np.arange(worker, worker + 5_000, dtype=np.int32) for worker in range(WORKERS)]
SUM = np.sum(VALUES, axis=0, dtype=np.int32)


@pytest.fixture(scope="module", autouse=True)
def _program() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NETSUM_LINK", "program")
        yield


@pytest.fixture(scope="module")
def switch(_program: None) -> Iterator[LoopbackSwitch]:
    """A switch, in a process that has compiled everything: forked workers have it too."""
    with LoopbackSwitch(LANES, WORKERS) as running:
        with ExitStack() as opened:
            communicators = [
                opened.enter_context(Communicator(each, bind=address, timeout_s=DEADLINE_S))
                for each, address in running.start_job()
            ]
            for each in on_all(communicators, lambda one: one.allreduce(VALUES[one.worker_id])):
                assert np.array_equal(each, SUM)
            assert {each.link for each in communicators} == {"program"}
        yield running


def memories_of(pid: int) -> int:
    """How many mappings and descriptors of lent programs a process has."""
    open_files = 0
    for each in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # Closed by another thread meanwhile.
            open_files += "memfd:netsum-lent" in os.readlink(each)
    return open_files + Path(f"/proc/{pid}/maps").read_text().count("memfd:netsum-lent")


# The program itself, on the same packets.


def admitted(switch: StarSwitch) -> list[Admission]:
    switch.tables.set_switch_address("127.0.0.1", OWN_MAC)
    places = [WorkerEndpoint(port, ip_at(port), mac_at(port), 40_000 + port) for port in range(WORKERS)]
    return switch.start_job("job", places, SLOTS).admissions


class Borrowers:
    """The workers of a job with a lent program, each over a mapping of its own."""

    def __init__(self, switch: StarSwitch) -> None:
        row_bytes = LINE_BYTES * (-(-(24 + 4 * LANES + HEADER_BYTES) // LINE_BYTES) | 1)
        request = LendingRequest(1, 0, WORKERS, SLOTS, row_bytes)
        self.switch, self.loan = (
            switch.engine,
            Loan(switch.engine.lend(row_bytes), request, 0x7F000001, UDP_PORT, 0),
        )
        self.mapped, self.ends = [], []
        for member in range(WORKERS):
            ip = int.from_bytes(socket.inet_aton(ip_at(member)), "big")
            assert self.loan.enter(member, member, ip, 40_000 + member)
            self.mapped.append(Borrowed(self.loan.descriptor, member))
            self.ends.append(borrower_of(self.mapped[-1], member, np.zeros(1, np.int64)))
            self.ends[-1].bells[:] = self.loan.bells

    def send(self, member: int, datagram: bytes) -> None:
        ends = self.ends[member].ends
        rows, lengths = free_rows(ends)
        rows[0, : len(datagram)] = np.frombuffer(datagram, np.uint8)
        lengths[0] = len(datagram)
        send(ends, 1)

    def received(self, member: int) -> list[bytes]:
        ends, found = self.ends[member].ends, []
        fetch(ends)
        while (datagram := next_datagram(ends))[1] >= 0:
            found.append(ctypes.string_at(*datagram))
        return found

    def registers(self) -> list[npt.NDArray[np.uint8]]:
        """The shared registers, as the switch's own are laid out."""
        at, mapped = self.switch._context.words, self.mapped[0]
        starts = [
            int(mapped.words[at[f"register {group}"]]) - mapped.base for group in range(len(self.own()))
        ]
        return [mapped.bytes[start:][: each.size] for start, each in zip(starts, self.own(), strict=True)]

    def own(self) -> list[npt.NDArray[np.uint8]]:
        """The registers of the switch that lends."""
        return self.switch._externs.registers


def random_datagram(chance: random.Random, admissions: list[Admission], member: int, newest: int) -> bytes:
    """A contribution mostly, of a chunk near the newest; sometimes something that no worker should send."""
    admission = admissions[member]
    chunk = max(0, newest - chance.choice([0, 0, 0, 0, 1, 2, SLOTS, 3 * SLOTS]))
    kind = chance.choice([c.KIND_CONTRIBUTE] * 6 + [c.KIND_PROBE, c.KIND_RESULT])
    has_lanes = chance.random() < 0.8
    header = Header(
        version=c.VERSION if chance.random() < 0.98 else 1,
        kind=kind,
        flags=(c.FLAG_LANES if has_lanes else 0) | (c.FLAG_HEADER_ONLY if chance.random() < 0.1 else 0),
        job_id=admission.job_id,
        quorum=0,
        op=chance.choice([c.OP_SUM, c.OP_SUM, c.OP_SUM, c.OP_MAX]),
        fingerprint=7 if chance.random() < 0.98 else 8,
        token=admission.token if chance.random() < 0.98 else 1,
        worker_id=member if chance.random() < 0.98 else (member + 1) % WORKERS,
        num_workers=0,
        pool_index=chunk % SLOTS * 2 + chunk // SLOTS % 2 if chance.random() < 0.98 else chance.randrange(64),
        chunk=chunk,
        exponent=chance.randrange(1, 8_000),
    )
    lanes = np.random.default_rng(chance.getrandbits(32)).integers(-(2**31), 2**31, LANES, np.int64)
    body = header.to_bytes() + (lanes.astype(np.int32).tobytes() if has_lanes else b"")
    return body if chance.random() < 0.98 else body[: chance.randrange(len(body))] or b"\0"


@pytest.mark.parametrize("seed", range(4))
def test_answers_and_registers_are_those_of_a_switch(seed: int) -> None:
    chance = random.Random(seed)
    alone, lends = (StarSwitch(LANES, token_seed=seed) for _ in range(2))
    admissions = admitted(alone)
    assert [each.token for each in admitted(lends)] == [each.token for each in admissions]
    borrowers = Borrowers(lends)
    kinds = set()
    for step in range(3_000):
        member = chance.randrange(WORKERS)
        datagram = random_datagram(chance, admissions, member, step // 6)
        frame = np.zeros((1, HEADER_BYTES + len(datagram)), np.uint8)
        frame[0, HEADER_BYTES:] = np.frombuffer(datagram, np.uint8)
        ip = int.from_bytes(socket.inet_aton(ip_at(member)), "big")
        write_headers(frame[0], len(datagram), ip, 40_000 + member, 0x7F000001, UDP_PORT)
        left = alone.engine.inject(Packets.of([(member, frame.tobytes())]), 0)
        borrowers.send(member, datagram)
        for port in range(WORKERS):
            expected = [each[HEADER_BYTES:] for to, each in left if to == port]
            assert borrowers.received(port) == expected, (step, port)
            kinds |= {each[0] & 15 for each in expected}
    assert kinds == {c.KIND_RESULT, c.KIND_STATUS}
    assert not any(each.any() for each in borrowers.own())
    for shared, own in zip(borrowers.registers(), alone.engine._externs.registers, strict=True):
        assert np.array_equal(shared, own)
    names = alone.tables.counters(range(4))
    assert any(sum(counted.values()) > 100 for counted in names.values())
    assert lends.tables.counters(range(4)) == names


# Workers that are killed, stopped or forked.


def end_in_the_program(link: Any, calls: int, number: int) -> Any:
    """Let the process send itself a signal in one of its calls of the program, with a slot's lock held."""
    run = ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_int64)
    original = run(int(link.ends.state["code"][0]))
    counted = 0

    def instead(context: int) -> int:
        nonlocal counted
        counted += 1
        if counted == calls:
            os.kill(os.getpid(), number)
        return int(original(context))

    kept = run(instead)
    link.ends.state["code"] = ctypes.cast(kept, ctypes.c_void_p).value
    return kept


def reduce_for_ever(admission: Admission, bind: tuple[str, int], calls: int, number: int, pipe: Any) -> None:
    with Communicator(admission, bind=bind, timeout_s=DEADLINE_S) as communicator:
        kept = end_in_the_program(communicator._link, calls, number)
        pipe.send("ready")
        while kept:
            communicator.allreduce(VALUES[0])


def borrower(function: Callable[..., None], *arguments: Any) -> tuple[Any, Any]:
    ours, theirs = _fork.Pipe()
    process = _fork.Process(target=function, args=(*arguments, theirs), daemon=True)
    process.start()
    theirs.close()
    return process, ours


@pytest.mark.parametrize("seed", range(KILLS))
def test_a_worker_that_is_killed_while_it_holds_a_slot_is_named(switch: LoopbackSwitch, seed: int) -> None:
    before = memories_of(os.getpid())
    (admission, bind), *others = switch.start_job()
    calls = random.Random(seed).randrange(1, 2_000)
    process, pipe = borrower(reduce_for_ever, admission, bind, calls, signal.SIGKILL)
    communicators = [Communicator(each, bind=address, timeout_s=NAMED_S) for each, address in others]
    assert pipe.recv() == "ready"

    def until_it_fails(communicator: Communicator) -> Any:
        while True:
            assert np.array_equal(communicator.allreduce(VALUES[communicator.worker_id]), SUM)

    for error in on_all(communicators, until_it_fails):
        assert isinstance(error, (MissingWorkersError, SwitchSilentError)), error
        named = isinstance(error, MissingWorkersError) and error.missing == (0,)
        assert named or "worker 0 of this switch ended while it held a slot" in str(error)
    process.join(DEADLINE_S)
    assert process.exitcode == -signal.SIGKILL
    for each in communicators:
        each.close()
    assert eventually(lambda: memories_of(os.getpid()) <= before)


def test_a_worker_that_is_stopped_while_it_holds_a_slot_goes_on(switch: LoopbackSwitch) -> None:
    (admission, bind), *others = switch.start_job()
    process, pipe = borrower(reduce_for_ever, admission, bind, 500, signal.SIGSTOP)
    with ExitStack() as opened:
        communicators = [
            opened.enter_context(Communicator(each, bind=address, timeout_s=DEADLINE_S))
            for each, address in others
        ]
        assert pipe.recv() == "ready"
        futures = [
            [each.allreduce_async(VALUES[each.worker_id]) for _ in range(40)] for each in communicators
        ]
        os.waitpid(process.pid, os.WUNTRACED)
        locked_out = [each._link.ends.state for each in communicators]
        assert eventually(lambda: any(state["locked_out"][0] for state in locked_out))
        os.kill(process.pid, signal.SIGCONT)
        for theirs in futures:
            for future in theirs:
                assert np.array_equal(future.result(DEADLINE_S), SUM)
    process.kill()
    process.join(DEADLINE_S)


def test_a_child_that_is_forked_while_sums_are_under_way_disturbs_nothing(switch: LoopbackSwitch) -> None:
    before = memories_of(os.getpid())
    with ExitStack() as opened:
        communicators = [
            opened.enter_context(Communicator(each, bind=address, timeout_s=DEADLINE_S))
            for each, address in switch.start_job()
        ]
        futures = [
            [each.allreduce_async(VALUES[each.worker_id]) for _ in range(50)] for each in communicators
        ]
        process, pipe = borrower(lambda pipe: pipe.send(str(_error_of(communicators[0]))))
        assert "forked" in pipe.recv()
        for theirs in futures:
            for future in theirs:
                assert np.array_equal(future.result(DEADLINE_S), SUM)
        process.join(DEADLINE_S)
    assert eventually(lambda: memories_of(os.getpid()) <= before)


def _error_of(communicator: Communicator) -> Exception | None:
    try:
        communicator.allreduce(VALUES[0])
    except Exception as error:
        return error
    return None


def test_a_worker_has_its_part_of_the_memory_once(switch: LoopbackSwitch) -> None:
    (admission, bind), *_ = switch.start_job()
    request = LendingRequest(admission.epoch << 32 | admission.token, 0, WORKERS, 16, 448)
    with ExitStack() as opened:
        own = opened.enter_context(socket.socket(socket.AF_INET, socket.SOCK_DGRAM))
        own.bind(bind)
        connection, descriptors = ask(admission.switch, own, request.to_bytes(), DEADLINE_S)
        opened.enter_context(connection)
        assert len(descriptors) == 1 + WORKERS
        with pytest.raises(AttachError, match="has its memory already"):
            ask(admission.switch, own, request.to_bytes(), DEADLINE_S)
        for each in descriptors:
            os.close(each)


def test_workers_that_ask_for_memory_of_different_sizes_have_none(switch: LoopbackSwitch) -> None:
    (admission, bind), *_ = switch.start_job()
    request = LendingRequest(admission.epoch << 32 | admission.token, 0, WORKERS, 16, 448)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as own:
        own.bind(bind)
        connection, descriptors = ask(admission.switch, own, request.to_bytes(), DEADLINE_S)
        with connection:
            with pytest.raises(AttachError, match="different sizes"):
                ask(admission.switch, own, request._replace(member=1, slots=8).to_bytes(), DEADLINE_S)
            connection.settimeout(DEADLINE_S)
            assert connection.recv(100).startswith(REFUSED)
        for each in descriptors:
            os.close(each)


def test_workers_whose_program_is_taken_out_of_the_switch_are_told() -> None:
    with LoopbackSwitch(LANES, WORKERS) as switch, ExitStack() as opened:
        communicators = [
            opened.enter_context(Communicator(each, bind=address, timeout_s=NAMED_S))
            for each, address in switch.start_job()
        ]
        for each in on_all(communicators, lambda one: one.allreduce(VALUES[one.worker_id])):
            assert np.array_equal(each, SUM)
        with switch.chassis.turn:
            switch.chassis.install(None)

        def until_it_fails(communicator: Communicator) -> Any:
            while True:
                communicator.allreduce(VALUES[communicator.worker_id])

        for error in on_all(communicators, until_it_fails):
            assert isinstance(error, SwitchSilentError)
            assert "has taken back the memory" in str(error)
