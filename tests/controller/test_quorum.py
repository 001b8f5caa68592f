"""Jobs with a quorum: their entries, refusals, and the controller's memory."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from controller import entries
from controller.errors import JobRefusedError, ServiceError
from controller.jobs import Job, WorkerEndpoint
from controller.ledger import JobLedger
from controller.service.jobs import Kind, RefusalError
from controller.service.requests import check_request
from controller.switch_tables import SwitchTables
from host_agent.errors import AdmissionError
from host_agent.job_api import jobs_pb2
from host_agent.job_api.job_request import JobRequest
from host_agent.joining import JoinError
from host_agent.wire import Admission
from netsum.programs import compiled_program
from netsum_common.targets import Capabilities, read_capabilities
from sim.programming import InProcessWriter
from sim.switch import Switch, load_program
from tests.controller import admitted
from tests.controller.service_harness import DEADLINE_S, Bench, fake_leaf_spine, until
from tests.dataplane.tna_logic import translate


def workers(count: int) -> list[WorkerEndpoint]:
    return [
        WorkerEndpoint(each, f"10.0.0.{each + 1}", f"02:00:00:00:00:{each:02x}", 9000)
        for each in range(count)
    ]


def admit(quorum: int, count: int = 4, slots: int = 8) -> Job:
    ledger = JobLedger(Capabilities())
    return admitted.admit(ledger, "job", workers(count), slots, unix_seconds=500, quorum=quorum)


def tables(path: Path) -> tuple[SwitchTables, InProcessWriter]:
    writer = InProcessWriter(Switch(load_program(path)))
    return SwitchTables(writer), writer


def test_the_switch_holds_the_quorum_as_long_as_the_job() -> None:
    job = admit(3)
    (entry,) = entries.quorum_entries(job)
    assert entry == entries.entry("job_quorum", {"job_id": 1}, "set_quorum", {"workers": 3})
    assert entries.quorum_entries(admit(0)) == []
    held, writer = tables(compiled_program(64).json)
    held.install(job)
    assert writer.read("job_quorum") == [entry]
    assert held.counters([1])[1]["late"] == 0
    found = held.reconcile(
        [replace(job, request=replace(job.request, quorum=2))], ("10.0.0.254", "02:00:00:00:00:fe"), {}, ()
    )
    assert "table job_quorum: 1 changed" in found.findings
    assert dict(writer.read("job_quorum")[0].params) == {"workers": 2}
    held.withdraw(job)
    assert writer.read("job_quorum") == []


def test_each_worker_gets_the_quorum() -> None:
    assert [one.quorum for one in admit(3).admissions] == [3] * 4
    one = admit(3).admissions[0]
    assert Admission.from_json(one.to_json()) == one


@pytest.mark.parametrize(
    ("quorum", "slots", "sentence"),
    [
        (5, 8, "a quorum is 1 to 4, the job's workers, not 5"),
        (-1, 8, "a quorum is 1 to 4, the job's workers, not -1"),
        (3, 1, "a job with a quorum needs 2 slots, not 1"),
    ],
)
def test_what_no_job_can_have(quorum: int, slots: int, sentence: str) -> None:
    with pytest.raises(JobRefusedError, match=sentence):
        admit(quorum, slots=slots)


@pytest.mark.parametrize(
    ("changes", "sentence"), [({"quorum": 5}, "quorum must be 0…4"), ({"slot_count": 1}, "two slots")]
)
def test_what_no_admission_has(changes: dict[str, int], sentence: str) -> None:
    with pytest.raises(AdmissionError, match=sentence):
        replace(admit(3).admissions[0], **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", translate.PASSES)
def test_tofinos_programs_have_them(name: str) -> None:
    """The logic of those programs, compiled for the embedded switch, has their tables."""
    held, writer = tables(translate.files(name)[0])
    held.install(replace(admit(3), capabilities=read_capabilities(translate.files(name)[1])))
    assert dict(writer.read("job_quorum")[0].params) == {"workers": 3}


@pytest.mark.parametrize("quorum", [-1, 5])
def test_a_request_and_a_job_have_the_same_rule(quorum: int) -> None:
    with pytest.raises(JobRefusedError) as of_job:
        admit(quorum)
    with pytest.raises(RefusalError) as of_request:
        check_request(JobRequest("job", 4, quorum=quorum))
    assert str(of_request.value) == str(of_job.value)
    assert of_request.value.kind is Kind.WRONG


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    one = Bench(tmp_path, monkeypatch, fake_leaf_spine((2, 2)))
    one.serve()
    yield one
    one.close()


def test_a_job_is_created_with_a_quorum_and_remembered(bench: Bench) -> None:
    assert bench.operator.create_job("made", 3, quorum=2).quorum == 2
    with pytest.raises(ServiceError, match="a quorum is 1 to 3, the job's workers, not 4"):
        bench.operator.create_job("wrong", 3, quorum=4)
    with pytest.raises(ServiceError, match="needs 2 slots, not 1"):
        bench.operator.create_job("narrow", 3, quorum=2, slots=1)
    bench.stop()
    bench.serve()
    until(lambda: bench.operator.job("made").quorum == 2)


def test_the_first_worker_says_which_quorum(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(tmp_path, monkeypatch)
    bench.serve()
    members = bench.join_all("job", 4, quorum=3)
    assert {(member.admission.quorum, len(member.admission.path)) for member in members} == {(3, 1)}
    view = bench.operator.job("job")
    assert (view.quorum, list(view.tree)) == (3, [])
    for member in members:
        member.close()
    until(lambda: bench.job("job") is None)
    with pytest.raises(JoinError, match="a quorum is 1 to 2, the job's workers, not 3"):
        bench.joining("other", 0, 2, quorum=3).result()
    bench.close()


@pytest.mark.parametrize("operated", [False, True])
def test_workers_of_two_switches_are_refused_at_once(bench: Bench, operated: bool) -> None:
    """In a job that no operator made, workers that wait for the refused one are notified, too."""
    if operated:
        bench.operator.create_job("job", 4, quorum=3)
    joining = {rank: bench.joining("job", rank, 4, quorum=3) for rank in range(2)}
    until(
        lambda: (
            (view := bench.job("job")) is not None
            and [one.state for one in view.workers[:2]] == [jobs_pb2.SEATED] * 2
        )
    )
    sentence = "a job with a quorum is added on one switch: worker 2 of job job is on switch l2, not on l1"
    with pytest.raises(JoinError, match=sentence):
        bench.joining("job", 2, 4, quorum=3).result(DEADLINE_S)
    if operated:
        assert bench.job("job") is not None
        bench.operator.delete_job("job")
    for each in joining.values():
        with pytest.raises(JoinError, match="deleted" if operated else sentence):
            each.result(DEADLINE_S)
    assert bench.job("job") is None
    assert all(not switch.jobs for switch in bench.switches.values())
