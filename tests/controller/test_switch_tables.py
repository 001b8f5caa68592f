"""A switch's contents after jobs were installed or it was reconciled, read back table by table.

Each test runs through both table writers: P4Runtime, and the one for an embedded switch in the same process.
"""

import dataclasses
from collections.abc import Iterator

import pytest

from controller import entries
from controller.entries import Entry, MulticastGroup
from controller.errors import JobRefusedError, SwitchRefusedError, SwitchUnreachableError
from controller.jobs import Job, ParentLink, WorkerEndpoint
from controller.ledger import JobLedger
from controller.p4runtime_writer import P4RuntimeWriter
from controller.program import CompiledFiles
from controller.session import P4RuntimeSession
from controller.switch_tables import _OWNED, SwitchTables
from controller.table_writer import Change, TableWriter
from netsum.programs import compiled_program
from netsum_common.targets import TARGETS, Capabilities
from sim.programming import InProcessWriter
from sim.switch import Switch, load_program
from sim.switch.p4runtime import P4RuntimeServer
from sim.switch.ports import Chassis
from tests.controller.admitted import admit

DEVICE_ID = 1
DEADLINE_S = 400.0
ADDRESS = ("10.0.0.254", "02:00:00:00:00:fe")
STATIONS = {"02:00:00:00:00:04": 4, "02:00:00:00:00:07": 7}
PORTS = (4, 7)
PARENT = ParentLink(port=9, ip="10.0.1.254", mac="02:00:00:00:01:fe", worker_id=3)


@pytest.fixture(scope="module")
def files() -> CompiledFiles:
    program = compiled_program(64)
    return CompiledFiles(program.json, program.p4info)


@pytest.fixture
def chassis() -> Chassis:
    return Chassis()


@pytest.fixture
def address(chassis: Chassis) -> Iterator[str]:
    with P4RuntimeServer(chassis, "127.0.0.1:0", device_id=DEVICE_ID) as server:
        yield server.address


@pytest.fixture
def remote(address: str, files: CompiledFiles) -> Iterator[P4RuntimeWriter]:
    session = P4RuntimeSession(address, DEVICE_ID, 1, DEADLINE_S)
    writer = P4RuntimeWriter(session, files)
    writer.set_pipeline()
    yield writer
    session.tear_down()


@pytest.fixture(params=["P4Runtime", "in process"])
def writer(request: pytest.FixtureRequest, files: CompiledFiles) -> TableWriter:
    if request.param == "P4Runtime":
        remote: P4RuntimeWriter = request.getfixturevalue("remote")
        return remote
    return InProcessWriter(Switch(load_program(files.path)))


@pytest.fixture
def tables(writer: TableWriter, files: CompiledFiles) -> SwitchTables:
    return SwitchTables(writer, files.target)


@pytest.fixture
def jobs() -> list[Job]:
    ledger = JobLedger(Capabilities())

    def admitted(name: str, number: int) -> Job:
        workers = [
            WorkerEndpoint(
                port=port, ip=f"10.0.0.{port}", mac=f"02:00:00:00:00:{port:02x}", udp_port=9000 + number
            )
            for port in PORTS
        ]
        return admit(
            ledger,
            name,
            workers,
            32,
            token=0xABCD + number,
            unix_seconds=500 + number,
            parent=PARENT if number else None,
        )

    return [admitted("first", 0), admitted("second", 1)]


def expected(jobs: list[Job]) -> dict[str, set[Entry]]:
    """The exact contents of each table."""
    return {
        entries.WORKER_ADMISSION: {one for job in jobs for one in entries.admission_entries(job)},
        entries.JOB_PARENT: {one for job in jobs for one in entries.parent_entries(job)},
        entries.JOB_QUORUM: {one for job in jobs for one in entries.quorum_entries(job)},
        entries.COPY_REWRITE: {one for job in jobs for one in entries.rewrite_entries(job)},
        entries.SWITCH_ADDRESS: {entries.address_entry(*ADDRESS)},
        entries.L2_FORWARD: set(entries.l2_entries(STATIONS)),
        entries.L3_ROUTE: set(),
    }


def held(writer: TableWriter) -> dict[str, set[Entry]]:
    return {table: set(writer.read(table)) for table in _OWNED if table in writer.tables}


def stray_entries(jobs: list[Job]) -> dict[str, list[Entry]]:
    """One entry in each table that no job and no network asks for."""
    old = dataclasses.replace(
        jobs[0], token=0x1111
    )  # The first job's admissions with the token of an earlier epoch.
    asked = dataclasses.replace(jobs[1].request, quorum=1)
    gone = dataclasses.replace(jobs[1], job_id=77, request=asked)
    return {
        entries.WORKER_ADMISSION: [entries.admission_entries(old)[0]],
        entries.JOB_PARENT: entries.parent_entries(gone),
        entries.JOB_QUORUM: entries.quorum_entries(
            dataclasses.replace(gone, request=dataclasses.replace(gone.request, quorum=1))
        ),
        entries.COPY_REWRITE: [entries.rewrite_entries(gone)[0]],
        entries.SWITCH_ADDRESS: [entries.address_entry("10.0.0.253", "02:00:00:00:00:fd")],
        entries.L2_FORWARD: entries.l2_entries({"02:00:00:00:00:99": 9}),
        entries.L3_ROUTE: [entries.l3_entry("10.9.0.0/16", 4, ADDRESS[1], "02:00:00:00:00:04")],
    }


@pytest.mark.parametrize("table", _OWNED)
def test_stray_entries_are_deleted(
    tables: SwitchTables, writer: TableWriter, jobs: list[Job], table: str
) -> None:
    tables.reconcile(jobs, ADDRESS, STATIONS, PORTS)
    stray = stray_entries(jobs)[table]
    writer.write(Change.INSERT, stray, "the test's stray entry")
    assert held(writer)[table] == expected(jobs)[table] | set(stray)
    found = tables.reconcile(jobs, ADDRESS, STATIONS, PORTS)
    assert held(writer) == expected(jobs)
    assert (found.removed, found.written, found.changed) == (1, 0, 0)
    assert found.findings == [f"table {table}: 1 removed"]


def test_a_job_that_ended_leaves_nothing(tables: SwitchTables, writer: TableWriter, jobs: list[Job]) -> None:
    tables.reconcile(jobs, ADDRESS, STATIONS, PORTS)
    found = tables.reconcile(jobs[:1], ADDRESS, STATIONS, PORTS)
    assert held(writer) == expected(jobs[:1])
    assert set(writer.groups()) == {jobs[0].job_id, entries.FLOOD_GROUP}
    held_of_it = [
        *entries.admission_entries(jobs[1]),
        *entries.parent_entries(jobs[1]),
        *entries.rewrite_entries(jobs[1]),
    ]
    assert found.removed == len(held_of_it) + 1


def test_changed_entries_and_groups_are_set_right(
    tables: SwitchTables, writer: TableWriter, jobs: list[Job]
) -> None:
    tables.reconcile(jobs, ADDRESS, STATIONS, PORTS)
    wrong = dataclasses.replace(jobs[0], epoch=jobs[0].epoch - 1)
    writer.write(Change.MODIFY, entries.admission_entries(wrong), "the test's change")
    writer.set_group(MulticastGroup(jobs[0].job_id, ((4, 1),)), "the test's change")
    found = tables.reconcile(jobs, ADDRESS, STATIONS, PORTS)
    assert held(writer) == expected(jobs)
    replicas = writer.groups()[jobs[0].job_id].replicas
    assert sorted(replicas) == sorted(entries.result_group(jobs[0]).replicas)
    assert (found.removed, found.written, found.changed) == (0, 0, len(PORTS) + 1)


def test_a_write_that_timed_out_is_not_carried_out_after_the_next_reconciliation(
    remote: P4RuntimeWriter, jobs: list[Job], chassis: Chassis, address: str, files: CompiledFiles
) -> None:
    """S4 after a slow switch: the slots of a job whose admission timed out may belong to another job by then."""
    SwitchTables(remote, files.target).reconcile(jobs[:1], ADDRESS, STATIONS, PORTS)
    remote.session.timeout_s = 0.5
    with chassis.turn, pytest.raises(SwitchUnreachableError, match="did not answer in time"):
        remote.write(Change.INSERT, entries.admission_entries(jobs[1]), "a job")
    remote.session.tear_down()
    # The write waits in the switch; the controller connects anew and reconciles, without the job.
    again = P4RuntimeWriter(P4RuntimeSession(address, DEVICE_ID, 1, DEADLINE_S), files)
    reconnected = SwitchTables(again, files.target)
    reconnected.reconcile(jobs[:1], ADDRESS, STATIONS, PORTS)
    reconnected.set_l2(
        STATIONS, PORTS
    )  # Writes are carried out in turn: whatever waited has had its turn by now.
    assert held(again) == expected(jobs[:1])
    again.session.tear_down()


def test_both_writers_leave_the_same_in_a_switch(
    remote: P4RuntimeWriter, files: CompiledFiles, jobs: list[Job]
) -> None:
    """A job installed, restarted, ended, and everything around it: the engines hold the same, entry by entry."""
    local = InProcessWriter(Switch(load_program(files.path)))
    restarted = dataclasses.replace(jobs[0], epoch=jobs[0].epoch + 7, token=0x7777)
    seen: list[list[object]] = []
    for writer in (remote, local):
        tables = SwitchTables(writer, files.target)
        states: list[object] = []

        def note(writer: TableWriter = writer, states: list[object] = states) -> None:
            groups = {number: sorted(group.replicas) for number, group in writer.groups().items()}
            states.append((held(writer), groups))

        tables.set_switch_address(*ADDRESS)
        tables.set_l2(STATIONS, PORTS)
        tables.set_l3(
            {"10.9.0.0/16": (4, ADDRESS[1], "02:00:00:00:00:04"), "0.0.0.0/0": (7, ADDRESS[1], ADDRESS[1])}
        )
        note()
        for job in jobs:
            tables.reset_counters(job)
            tables.install(job)
        note()
        tables.install(restarted)
        note()
        states.append((tables.counters([0, 1, 2]), tables.admitted(restarted)))
        with pytest.raises(SwitchRefusedError, match="refused reading"):
            tables.admitted(jobs[0])  # The job's epoch is over.
        with pytest.raises(SwitchRefusedError, match="refused insert for the same job again"):
            writer.write(Change.INSERT, entries.admission_entries(restarted), "the same job again")
        tables.withdraw(restarted)
        note()
        states.append(dataclasses.astuple(tables.reconcile(jobs[1:], ADDRESS, STATIONS, PORTS)))
        note()
        seen.append(states)
    assert seen[0] == seen[1]
    assert len(seen[0]) == 7


@pytest.mark.parametrize(("port", "welcome"), [(127, True), (128, False)])
def test_the_parent_is_on_the_childrens_pipe(
    writer: TableWriter, jobs: list[Job], port: int, welcome: bool
) -> None:
    job = dataclasses.replace(jobs[1], parent=dataclasses.replace(PARENT, port=port))
    tables = SwitchTables(writer, TARGETS["tofino"])
    if welcome:
        tables.install(job)
        assert held(writer)[entries.JOB_PARENT] == set(entries.parent_entries(job))
        return
    with pytest.raises(JobRefusedError, match="pipe 0: ports 4, 7; pipe 1: ports 128"):
        tables.install(job)
    assert not any(held(writer).values())
