"""`netsum controller serve` pushes Tofino's program and its entries, and workers add through what runs it.

That is the ASIC model, or in its place the translation of the program (tests/dataplane/tna_logic) in the embedded engine.
"""

import contextlib
import json
import signal
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from controller import entries
from controller.service.client import OperatorClient
from host_agent.communicator import Communicator, compile_ahead
from host_agent.job_api import jobs_pb2
from netsum_common.targets import Capabilities
from netsum_common.targets.capabilities import capabilities_file
from sim.switch import Exact, Packets, TableEntry
from sim.switch.ports import UdpPorts
from tests.controller.service_harness import DEADLINE_S, until
from tests.controller.test_service_process import Process, join_both
from tests.dataplane.dataplane import asic_model
from tests.dataplane.dataplane.embedded import EmbeddedTarget
from tests.dataplane.dataplane.model_switch import Make, ModelChassis, PushedProgram, model_server
from tests.dataplane.dataplane.target import Target
from tests.dataplane.tna_logic import translate
from topologies.hosts import Host
from topologies.topology import SwitchSpec

LANES = translate.LANES
WORKERS = 2
CHUNKS = 3
NETWORK = "127.9.77"
WAIT_MS = 100


@dataclass(frozen=True)
class Compiled:
    """The program that the controller pushes, and its target."""

    conf: Path
    p4info: Path
    make: Make


def translated(folder: Path) -> Compiled:
    """Stand for the compiler and the model: files of any content, and the translation."""
    (folder / "pipe").mkdir(parents=True)
    for name in ("bf-rt.json", "pipe/context.json", "pipe/tofino.bin"):
        (folder / name).write_text(name)
    pipeline = {"p4_pipeline_name": "pipe", "context": "pipe/context.json", "config": "pipe/tofino.bin"}
    program = {"program-name": "netsum", "bfrt-config": "bf-rt.json", "p4_pipelines": [pipeline]}
    (folder / "netsum.conf").write_text(json.dumps({"p4_devices": [{"p4_programs": [program]}]}))

    def make(program: PushedProgram) -> Target:
        assert (program.binary, program.context) == (b"pipe/tofino.bin", b"pipe/context.json")
        return EmbeddedTarget(LANES, translate.files("tna_logic"))

    # The translation's P4Info, with the abilities of a program for the chip.
    translation = translate.files("tna_logic")[1]
    p4info = folder / "netsum.p4info.txtpb"
    p4info.write_bytes(translation.read_bytes())
    abilities = capabilities_file(translation).read_text().replace('"v1model"', '"tna"')
    capabilities_file(p4info).write_text(abilities)
    return Compiled(folder / "netsum.conf", p4info, make)


def on_the_model(chip: asic_model.Chip, folder: Path) -> Compiled:
    """Take what `make p4-tofino` made."""
    del folder
    reason = asic_model.why_not(LANES, chip=chip)
    if reason is not None:
        pytest.skip(reason)
    made = asic_model.program_folder(LANES, chip=chip)
    return Compiled(
        made / "netsum.conf",
        made / f"{made.name}.p4info.txtpb",
        lambda program: asic_model.AsicModelTarget(
            Capabilities(lanes=LANES), program.binary, program.context, chip=chip
        ),
    )


def mac_of(number: int) -> str:
    """A host's address at the switch's UDP ports."""
    return "02:00:" + bytes(map(int, f"{NETWORK}.{number}".split("."))).hex(":")


@dataclass
class ModelTestbed:
    """The model as a switch whose ports are UDP sockets."""

    ports: UdpPorts
    address: str
    compiled: Compiled

    def __post_init__(self) -> None:
        self.spec = SwitchSpec("s1", f"{NETWORK}.254", mac_of(254), 1)
        self.p4runtime_address = self.address
        self.hosts = tuple(
            Host(f"h{port}", port, f"{NETWORK}.{port + 1}", mac_of(port + 1), 0, where)
            for port, where in self.ports.addresses.items()
        )
        self._chassis: ModelChassis | None = None
        self._power = contextlib.ExitStack()

    @property
    def chassis(self) -> ModelChassis:
        """The target of the running model."""
        assert self._chassis is not None
        return self._chassis

    def turn_on(self) -> None:
        """Start a model without a program."""
        self._chassis = self._power.enter_context(
            model_server(self.ports, self.compiled.p4info, self.compiled.make, self.address)
        )
        stop = threading.Event()
        thread = threading.Thread(target=self._forward, args=(self._chassis, stop), daemon=True)
        self._power.callback(thread.join)
        self._power.callback(stop.set)
        thread.start()

    def turn_off(self) -> None:
        """Lose all that it holds."""
        self._power.close()

    def _forward(self, chassis: ModelChassis, stop: threading.Event) -> None:
        while not stop.is_set():
            count = self.ports.receive(WAIT_MS)
            if count:
                ports, lengths = (
                    self.ports.record.ports[:count].copy(),
                    self.ports.record.lengths[:count].copy(),
                )
                chassis.inject(Packets(ports, lengths, self.ports.record.frames[:count].copy()))


@pytest.fixture(
    params=[
        pytest.param(translated, id="translated"),
        *(
            pytest.param(
                partial(on_the_model, chip), id=chip.name, marks=[pytest.mark.slow, pytest.mark.timeout(1600)]
            )
            for chip in (asic_model.TOFINO, asic_model.TOFINO2)
        ),
    ]
)
def testbed(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[ModelTestbed]:
    compiled = request.param(tmp_path / "program")
    compile_ahead()
    with UdpPorts([(port, 0) for port in range(WORKERS)], host=f"{NETWORK}.254") as ports:
        one = ModelTestbed(ports, f"unix:{tmp_path}/p4runtime.sock", compiled)
        try:
            one.turn_on()
            yield one
        finally:
            one.turn_off()


@pytest.fixture
def stack() -> Iterator[contextlib.ExitStack]:
    with contextlib.ExitStack() as one:
        yield one


@pytest.fixture
def process(testbed: ModelTestbed, tmp_path: Path) -> Iterator[Process]:
    given = testbed.compiled
    one = Process(testbed, tmp_path, ("--program", str(given.conf), "--p4info", str(given.p4info)))
    try:
        one.start()
        yield one
    finally:
        one.close()


def add(comms: Sequence[Communicator], times: int) -> None:
    """Have the workers add; all must get the exact sum."""
    numbers = np.arange(CHUNKS * LANES, dtype=np.int32) * times
    with ThreadPoolExecutor(len(comms)) as threads:
        totals = [threads.submit(comm.allreduce, numbers * (rank + 1)) for rank, comm in enumerate(comms)]
        for total in totals:
            assert (total.result(DEADLINE_S) == numbers * 3).all()


def test_a_job_on_the_model_outlives_its_controller_and_the_model(
    process: Process, testbed: ModelTestbed, stack: contextlib.ExitStack
) -> None:
    memberships = join_both(process, testbed, "job")
    for membership in memberships:
        stack.callback(membership.close)
    assert memberships[0].admission.lanes == LANES
    comms = [stack.enter_context(membership.communicator(timeout_s=DEADLINE_S)) for membership in memberships]
    add(comms, 1)
    switch = testbed.chassis.switch
    with OperatorClient(process.address, timeout_s=DEADLINE_S) as operator:
        # Counts that the model does not give in time are left out.
        until(lambda: operator.job("job").counters["results"] >= CHUNKS)

    # Another controller on the same state finds all in place.
    writes = switch.writes
    process.end(signal.SIGKILL)
    process.start()
    with OperatorClient(process.address, timeout_s=DEADLINE_S) as operator:
        until(lambda: all(one.state == jobs_pb2.SEATED for one in operator.job("job").workers))
        assert operator.switch().reconciliation.findings == []
    assert switch.writes == writes
    assert len(testbed.chassis.made) == 1
    add(comms, 2)

    # Stray entries go, and missing ones come back.
    process.end(signal.SIGTERM)
    stray = TableEntry(
        (Exact(77), Exact(0)), 0, action_of(testbed, "rewrite"), (0x02000000FFFF, 0x0A000001, 9)
    )
    rewrite = table_of(testbed, "copy_rewrite")
    (ours, *_) = switch.table_entries(rewrite)
    switch.table_insert(rewrite, stray)
    switch.table_delete(rewrite, ours)
    process.start()
    with OperatorClient(process.address, timeout_s=DEADLINE_S) as operator:
        until(lambda: operator.switch().state == jobs_pb2.READY)
        found = operator.switch().reconciliation
        assert (found.removed, found.written) == (1, 1)
        assert any(entries.COPY_REWRITE in finding for finding in found.findings)
        until(lambda: all(one.state == jobs_pb2.SEATED for one in operator.job("job").workers))
    assert stray not in switch.table_entries(rewrite)
    assert ours in switch.table_entries(rewrite)
    add(comms, 3)

    # A model that comes back empty gets the program and the job, in a new epoch.
    epoch = memberships[0].admission.epoch
    for comm in comms:
        comm.close()
    testbed.turn_off()
    testbed.turn_on()
    for membership in memberships:
        assert membership.restarted(DEADLINE_S).epoch > epoch
    assert testbed.chassis.switch.table_entries(rewrite)
    comms = [stack.enter_context(membership.communicator(timeout_s=DEADLINE_S)) for membership in memberships]
    add(comms, 4)


def table_of(testbed: ModelTestbed, name: str) -> str:
    """Name a table of the program in full."""
    return next(each for each in testbed.chassis.switch.tables if each.endswith(f".{name}"))


def action_of(testbed: ModelTestbed, name: str) -> str:
    """Name an action of the program in full."""
    return next(each for each in testbed.chassis.switch.actions if each.endswith(f".{name}"))
