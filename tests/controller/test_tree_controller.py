"""Jobs on trees of switches: all of a job's switches hold their part, or none holds any."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from controller.entries import COPY_REWRITE, WORKER_ADMISSION
from controller.errors import ControllerError, JobRefusedError, UnknownJobError
from controller.job_controller import JobController
from controller.p4runtime_writer import P4RuntimeWriter
from controller.program import CompiledFiles
from controller.session import P4RuntimeSession
from controller.switch_tables import SwitchTables
from netsum.programs import compiled_program
from sim.switch.p4runtime import P4RuntimeServer
from sim.switch.ports.chassis import Chassis
from tests.controller.test_trees import leaf_spine, worker

ROOT = Path(__file__).resolve().parents[2]
TNA = ROOT / "tests" / "dataplane" / "tna_logic"
TIMEOUT_S = 60.0


@contextlib.contextmanager
def controlled(files: CompiledFiles, leaves: int) -> Iterator[tuple[JobController, dict[str, SwitchTables]]]:
    """A controller of running switches: some leaves and a spine."""
    switches = leaf_spine(leaves, 1)
    with contextlib.ExitStack() as stack:
        tables = {}
        for name, switch in switches.items():
            server = stack.enter_context(P4RuntimeServer(Chassis(cpu_port=510), "127.0.0.1:0", device_id=1))
            session = P4RuntimeSession(server.address, 1, 1, TIMEOUT_S)
            stack.callback(session.tear_down)
            writer = P4RuntimeWriter(session, files)
            writer.set_pipeline()
            tables[name] = SwitchTables(writer, files.target)
            tables[name].set_switch_address(switch.ip, switch.mac)
        yield JobController(switches, tables, files.capabilities), tables


def held(tables: SwitchTables) -> int:
    """How many entries of jobs a switch says it holds."""
    return sum(len(tables._writer.read(table)) for table in (WORKER_ADMISSION, COPY_REWRITE))


@pytest.fixture(scope="module", params=["v1model", "tna"])
def one_program(request: pytest.FixtureRequest) -> CompiledFiles:
    if request.param == "tna":
        return CompiledFiles(TNA / "tna_tree.json", TNA / "tna_tree.p4info.txtpb")
    program = compiled_program(64)
    return CompiledFiles(program.json, program.p4info)


def test_a_job_of_one_rack_is_begun_restarted_and_ended(one_program: CompiledFiles) -> None:
    with controlled(one_program, 1) as (controller, tables):
        job = controller.create_job("job", [worker("l1", 1), worker("l1", 2)], 8)
        assert [one.rank for one in job.admissions] == [0, 1]
        assert held(tables["l1"]) == 4
        assert held(tables["p1"]) == 0
        with pytest.raises(JobRefusedError, match="a job named 'job' is running"):
            controller.create_job("job", [worker("l1", 1)])
        again = controller.restart_job(job)
        assert held(tables["l1"]) == 4
        first, second = job.admissions[0], again.admissions[0]
        assert (second.job_id, second.path) == (first.job_id, first.path)
        assert second.epoch > first.epoch
        assert second.token != first.token
        assert controller.counters(job) == {"l1": dict.fromkeys(controller.counters(job)["l1"], 0)}
        controller.end_job(job)
        assert (held(tables["l1"]), controller.load("l1"), controller.jobs) == (0, 0.0, ())
        with pytest.raises(UnknownJobError, match="'job' has ended"):
            controller.end_job(again)


def test_two_jobs_share_the_switches_of_a_tree(one_program: CompiledFiles) -> None:
    with controlled(one_program, 2) as (controller, tables):
        for number, name in enumerate(("first", "second"), start=1):
            controller.create_job(name, [worker("l1", number), worker("l2", number)], 8)
        assert len(controller.jobs) == 2
        with pytest.raises(JobRefusedError, match="both receive on"):
            controller.create_job("third", [worker("l1", 1), worker("l2", 3)], 8)
        assert len(controller.jobs) == 2
        alone = held(tables["p1"]) // 2
        controller.end_job(controller.jobs[0])
        assert held(tables["p1"]) == alone


def test_a_program_without_trees_refuses_one_and_no_switch_holds_a_part() -> None:
    files = CompiledFiles(TNA / "tna_logic.json", TNA / "tna_logic.p4info.txtpb")
    with controlled(files, 2) as (controller, tables):
        with pytest.raises(JobRefusedError, match="job 'job' needs a tree of switches, and the program"):
            controller.create_job("job", [worker("l1", 1), worker("l2", 1)], 8)
        assert {name: held(each) for name, each in tables.items()} == {"l1": 0, "l2": 0, "p1": 0}
        assert {controller.load(name) for name in tables} == {0.0}
        single = controller.create_job("job", [worker("l2", 1), worker("l2", 2)], 8)
        assert [one.world_size for one in single.admissions] == [2, 2]


def test_a_switch_without_room_leaves_the_others_free(one_program: CompiledFiles) -> None:
    with controlled(one_program, 2) as (controller, tables):
        controller.create_job("full", [worker("l2", 1)], one_program.capabilities.slots)
        with pytest.raises(JobRefusedError, match="switch l2: "):
            controller.create_job("job", [worker("l1", 3), worker("l2", 3)], 8)
        assert [controller.load(name) for name in ("l1", "l2", "p1")] == [0.0, 1.0, 0.0]
        assert [held(tables[name]) for name in ("l1", "p1")] == [0, 0]


def test_a_switch_that_is_gone_refuses_the_job_and_holds_nothing(one_program: CompiledFiles) -> None:
    with controlled(one_program, 1) as (controller, tables):
        writer = tables["l1"]._writer
        assert isinstance(writer, P4RuntimeWriter)
        writer.session.tear_down()
        with pytest.raises(ControllerError):
            controller.create_job("job", [worker("l1", 1)], 8)
        assert (controller.load("l1"), controller.jobs) == (0.0, ())


@pytest.mark.parametrize("one_program", ["v1model"], indirect=True)
@pytest.mark.parametrize("gone", ["l1", "l2", "p1"])
def test_a_restart_leaves_nothing_on_the_switches_that_answer(one_program: CompiledFiles, gone: str) -> None:
    with controlled(one_program, 2) as (controller, tables):
        job = controller.create_job("job", [worker("l1", 1), worker("l2", 1)], 8)
        writer = tables[gone]._writer
        assert isinstance(writer, P4RuntimeWriter)
        writer.session.tear_down()
        with pytest.raises(ControllerError):
            controller.restart_job(job)
        assert [held(each) for name, each in tables.items() if name != gone] == [0, 0]


@pytest.mark.parametrize("one_program", ["v1model"], indirect=True)
def test_a_job_with_a_quorum_is_on_one_switch(one_program: CompiledFiles) -> None:
    with controlled(one_program, 2) as (controller, tables):
        with pytest.raises(
            JobRefusedError, match="a job with a quorum is added on one switch, and 'job' needs"
        ):
            controller.create_job("job", [worker("l1", 1), worker("l2", 1)], 8, quorum=1)
        assert [held(each) for each in tables.values()] == [0, 0, 0]
        job = controller.create_job("job", [worker("l1", 1), worker("l1", 2)], 8, quorum=1)
        assert [one.quorum for one in job.admissions] == [1, 1]
