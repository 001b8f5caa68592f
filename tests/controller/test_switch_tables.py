"""What a switch holds after it was reconciled, read back table by table, on an embedded switch in this process."""

import dataclasses
from collections.abc import Iterator

import pytest

from controller import entries
from controller.entries import Entry, Group
from controller.errors import SwitchUnreachableError
from controller.jobs import Job, JobLedger, WorkerEndpoint
from controller.p4info import group_message
from controller.session import P4RuntimeSession, Update
from controller.switch_tables import _OWNED, CompiledFiles, SwitchTables
from netsum.programs import compiled_program
from sim.switch.p4runtime import serve
from sim.switch.ports import Chassis

DEVICE_ID = 1
DEADLINE_S = 100.0
ADDRESS = ("10.0.0.254", "02:00:00:00:00:fe")
STATIONS = {"02:00:00:00:00:04": 4, "02:00:00:00:00:07": 7}
PORTS = (4, 7)


@pytest.fixture(scope="module")
def files() -> CompiledFiles:
    program = compiled_program(64)
    return CompiledFiles(program.json, program.p4info)


@pytest.fixture
def chassis() -> Chassis:
    return Chassis()


@pytest.fixture
def address(chassis: Chassis) -> Iterator[str]:
    with serve(chassis, "127.0.0.1:0", device_id=DEVICE_ID) as server:
        yield server.address


@pytest.fixture
def tables(address: str, files: CompiledFiles) -> Iterator[SwitchTables]:
    session = P4RuntimeSession(address, DEVICE_ID, 1, DEADLINE_S)
    tables = SwitchTables(session, files)
    tables.set_pipeline()
    yield tables
    session.tear_down()


@pytest.fixture
def jobs() -> list[Job]:
    ledger = JobLedger(1024, 64)

    def admitted(name: str, number: int) -> Job:
        workers = [
            WorkerEndpoint(
                port=port, ip=f"10.0.0.{port}", mac=f"02:00:00:00:00:{port:02x}", udp_port=9000 + number
            )
            for port in PORTS
        ]
        switch = (ADDRESS[0], 28275)
        return ledger.admit(
            name, workers, 32, switch=switch, token=0xABCD + number, unix_seconds=500 + number
        )

    return [admitted("first", 0), admitted("second", 1)]


def expected(jobs: list[Job]) -> dict[str, set[Entry]]:
    """What each table must hold, and nothing else."""
    return {
        entries.WORKER_ADMISSION: {one for job in jobs for one in entries.admission_entries(job)},
        entries.COPY_REWRITE: {one for job in jobs for one in entries.rewrite_entries(job)},
        entries.SWITCH_ADDRESS: {entries.address_entry(*ADDRESS)},
        entries.L2_FORWARD: set(entries.l2_entries(STATIONS)),
        entries.L3_ROUTE: set(),
    }


def held(tables: SwitchTables) -> dict[str, set[Entry]]:
    return {table: set(tables._read(table)) for table in tables._owned}


def stray_entries(jobs: list[Job]) -> dict[str, list[Entry]]:
    """One entry in each table that no job and no network asks for."""
    old = dataclasses.replace(
        jobs[0], token=0x1111
    )  # The first job's admissions with the token of an earlier epoch.
    gone = dataclasses.replace(jobs[1], job_id=77)
    return {
        entries.WORKER_ADMISSION: [entries.admission_entries(old)[0]],
        entries.COPY_REWRITE: [entries.rewrite_entries(gone)[0]],
        entries.SWITCH_ADDRESS: [entries.address_entry("10.0.0.253", "02:00:00:00:00:fd")],
        entries.L2_FORWARD: entries.l2_entries({"02:00:00:00:00:99": 9}),
        entries.L3_ROUTE: [entries.l3_entry("10.9.0.0/16", 4, ADDRESS[1], "02:00:00:00:00:04")],
    }


@pytest.mark.parametrize("table", [table for table in _OWNED if table != entries.JOB_PARENT])
def test_stray_entries_are_deleted(tables: SwitchTables, jobs: list[Job], table: str) -> None:
    tables.reconcile(jobs, ADDRESS, STATIONS, PORTS)
    stray = stray_entries(jobs)[table]
    tables._write(Update.INSERT, stray, "the test's stray entry")
    assert held(tables)[table] == expected(jobs)[table] | set(stray)
    found = tables.reconcile(jobs, ADDRESS, STATIONS, PORTS)
    assert held(tables) == expected(jobs)
    assert (found.removed, found.written, found.changed) == (1, 0, 0)
    assert found.findings == [f"table {table}: 1 removed"]


def test_a_job_that_ended_leaves_nothing(tables: SwitchTables, jobs: list[Job]) -> None:
    tables.reconcile(jobs, ADDRESS, STATIONS, PORTS)
    found = tables.reconcile(jobs[:1], ADDRESS, STATIONS, PORTS)
    assert held(tables) == expected(jobs[:1])
    assert set(tables._read_groups()) == {jobs[0].job_id, entries.FLOOD_GROUP}
    assert (
        found.removed == len(entries.admission_entries(jobs[1])) + len(entries.rewrite_entries(jobs[1])) + 1
    )


def test_changed_entries_and_groups_are_set_right(tables: SwitchTables, jobs: list[Job]) -> None:
    tables.reconcile(jobs, ADDRESS, STATIONS, PORTS)
    wrong = dataclasses.replace(jobs[0], epoch=jobs[0].epoch - 1)
    tables._write(Update.MODIFY, entries.admission_entries(wrong), "the test's change")
    wrong_group = [group_message(Group(jobs[0].job_id, ((4, 1),)))]
    tables.session.apply(Update.MODIFY, wrong_group, "the test's change")
    found = tables.reconcile(jobs, ADDRESS, STATIONS, PORTS)
    assert held(tables) == expected(jobs)
    replicas = tables._read_groups()[jobs[0].job_id].replicas
    assert sorted(replicas) == sorted(entries.result_group(jobs[0]).replicas)
    assert (found.removed, found.written, found.changed) == (0, 0, len(PORTS) + 1)


def test_a_write_that_timed_out_is_not_carried_out_after_the_next_reconciliation(
    tables: SwitchTables, jobs: list[Job], chassis: Chassis, address: str, files: CompiledFiles
) -> None:
    """S4 after a slow switch: the slots of a job whose admission timed out may belong to another job by then."""
    tables.reconcile(jobs[:1], ADDRESS, STATIONS, PORTS)
    tables.session.timeout_s = 0.5
    with chassis.turn, pytest.raises(SwitchUnreachableError, match="did not answer in time"):
        tables._write(Update.INSERT, entries.admission_entries(jobs[1]), "a job")
    tables.session.tear_down()
    # The write waits in the switch; the controller connects anew and reconciles, without the job.
    again = P4RuntimeSession(address, DEVICE_ID, 1, DEADLINE_S)
    reconnected = SwitchTables(again, files)
    reconnected.reconcile(jobs[:1], ADDRESS, STATIONS, PORTS)
    reconnected.set_l2(
        STATIONS, PORTS
    )  # Writes are carried out in turn: whatever waited has had its turn by now.
    assert held(reconnected) == expected(jobs[:1])
    again.tear_down()
