"""Jobs: ids, epochs, tokens and slots are disjoint among the living, and epochs never come twice."""

import dataclasses
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from controller.errors import JobRefusedError, UnknownJobError
from controller.jobs import Job, WorkerEndpoint
from controller.ledger import JobLedger, Ledgers
from controller.trees import Branch, Tree, sending_to
from host_agent.job_api.job_request import JobRequest
from netsum_common.targets import Capabilities
from tests.controller import admitted
from tests.controller.admitted import SWITCH


def endpoints(count: int, udp_port: int = 5000) -> list[WorkerEndpoint]:
    return [
        WorkerEndpoint(port=n, ip=f"10.0.0.{n + 1}", mac=f"02:00:00:00:00:{n:02x}", udp_port=udp_port)
        for n in range(count)
    ]


def admit(ledger: JobLedger, name: str, slots: int = 64, *, now: int = 1000, udp_port: int = 5000) -> Job:
    return admitted.admit(ledger, name, endpoints(2, udp_port), slots, token=7, unix_seconds=now)


def renew(ledger: JobLedger, job: Job, *, token: int, now: int) -> Job:
    return ledger.admit(job.request, job.workers, token=token, unix_seconds=now)


class Jobs(RuleBasedStateMachine):
    """Any order of admitting, renewing and ending, with a clock that also stands still or goes back."""

    def __init__(self) -> None:
        super().__init__()
        self.ledger = JobLedger(Capabilities())
        self.jobs: list[Job] = []
        self.epochs: list[int] = []
        self.count = 0

    @rule(slots=st.integers(0, 10).map(lambda e: 1 << e), now=st.integers(1, 50))
    def admit(self, slots: int, now: int) -> None:
        self.count += 1
        try:
            job = admit(self.ledger, f"job{self.count}", slots, now=now, udp_port=self.count)
        except JobRefusedError:
            assert slots > self.ledger.free_slots or len(self.jobs) > 1
            return
        self.jobs.append(job)
        self.epochs.append(job.epoch)

    @precondition(lambda self: self.jobs)
    @rule(place=st.integers(0, 100), now=st.integers(1, 50))
    def renew(self, place: int, now: int) -> None:
        job = self.jobs.pop(place % len(self.jobs))
        renewed = renew(self.ledger, job, token=job.token + 1, now=now)
        assert dataclasses.replace(renewed, epoch=job.epoch, token=job.token) == job
        self.jobs.append(renewed)
        self.epochs.append(renewed.epoch)

    @precondition(lambda self: self.jobs)
    @rule(place=st.integers(0, 100))
    def end(self, place: int) -> None:
        job = self.jobs.pop(place % len(self.jobs))
        self.ledger.discard(job.name)
        with pytest.raises(UnknownJobError, match=f"job '{job.name}' has ended"):
            renew(self.ledger, job, token=job.token + 1, now=1)

    @invariant()
    def epochs_only_grow(self) -> None:
        assert self.epochs == sorted(set(self.epochs))

    @invariant()
    def the_living_share_nothing(self) -> None:
        assert sorted(self.jobs, key=lambda job: job.job_id) == list(self.ledger.jobs)
        assert len({job.job_id for job in self.jobs}) == len(self.jobs)
        slots = [slot for job in self.jobs for slot in range(job.slots.base, job.slots.end)]
        assert len(slots) == len(set(slots)) == 4096 - self.ledger.free_slots


TestJobs = Jobs.TestCase


def test_the_epoch_is_the_time_unless_it_has_been_used() -> None:
    ledger = JobLedger(Capabilities(), last_epoch=900)
    first = admit(ledger, "first", now=1000)
    second = admit(ledger, "second", now=1000, udp_port=5001)
    third = renew(ledger, first, token=8, now=400)
    assert (first.epoch, second.epoch, third.epoch) == (1000, 1001, 1002)


def test_a_job_takes_no_epoch_that_its_workers_had_on_other_switches() -> None:
    ledgers = Ledgers({"s1": JobLedger(Capabilities(), last_epoch=900)})
    request = JobRequest("job", 2)
    ledgers.reserve(request, ["s1"], 64)
    children = tuple(sending_to(SWITCH[0], endpoints(2), SWITCH[1]))
    tree = Tree((Branch("s1", children, ((0,), (1,)), None),), {})
    # A job's workers have been given several epochs within one second.
    assert ledgers.admit(request, tree, token=1, unix_seconds=1000, last_epoch=1003)["s1"].epoch == 1004


@pytest.mark.parametrize(("last", "now"), [(0xFFFF_FFFF, 5), (0, 1 << 32), (-1, 0)])
def test_an_epoch_that_does_not_fit_is_refused(last: int, now: int) -> None:
    ledger = JobLedger(Capabilities(), last_epoch=last)
    with pytest.raises(JobRefusedError, match="the next epoch would be"):
        admit(ledger, "job", now=now)
    assert ledger.free_slots == 4096


def test_a_name_is_used_once() -> None:
    ledger = JobLedger(Capabilities())
    job = admit(ledger, "job")
    with pytest.raises(JobRefusedError, match="a job named 'job' is running"):
        admit(ledger, "job", udp_port=5001)
    ledger.discard("job")
    again = admit(ledger, "job")
    assert again.epoch > job.epoch


def test_all_255_ids() -> None:
    ledger = JobLedger(Capabilities())
    jobs = [admit(ledger, str(n), 1, udp_port=1000 + n) for n in range(255)]
    assert [job.job_id for job in jobs] == list(range(1, 256))
    with pytest.raises(JobRefusedError, match="the switch has 255 jobs"):
        admit(ledger, "one more", 1, udp_port=2000)
    ledger.discard("99")
    assert admit(ledger, "one more", 1, udp_port=2000).job_id == 100


@pytest.mark.parametrize("count", [0, 33])
def test_1_to_32_workers(count: int) -> None:
    with pytest.raises(JobRefusedError, match=f"a job has 1 to 32 workers, not {count}"):
        admitted.admit(JobLedger(Capabilities(slots=8)), "job", endpoints(count), 8)


@given(ids=st.permutations(range(5)))
def test_workers_are_in_the_order_of_their_ids(ids: list[int]) -> None:
    workers = [
        dataclasses.replace(worker, worker_id=worker_id)
        for worker, worker_id in zip(endpoints(5), ids, strict=True)
    ]
    job = admitted.admit(JobLedger(Capabilities(slots=8)), "job", workers, 8)
    assert [worker.worker_id for worker in job.workers] == list(range(5))
    assert [job.workers[worker_id].port for worker_id in ids] == list(range(5))


@pytest.mark.parametrize("ids", [(0, 0), (1, 2), (0, 2)])
def test_worker_ids_without_a_gap(ids: tuple[int, int]) -> None:
    workers = [dataclasses.replace(one, worker_id=n) for one, n in zip(endpoints(2), ids, strict=True)]
    with pytest.raises(JobRefusedError, match=r"the worker ids of a job are 0 to 1, each once"):
        admitted.admit(JobLedger(Capabilities(slots=8)), "job", workers, 8)


def test_no_job_receives_the_results_of_another() -> None:
    ledger = JobLedger(Capabilities())
    admit(ledger, "first")
    with pytest.raises(JobRefusedError, match=r"worker 0 and job 'first' both receive on 10.0.0.1:5000"):
        admit(ledger, "second")
    twins = [endpoints(1, udp_port=5001)[0]] * 2
    with pytest.raises(JobRefusedError, match=r"worker 1 and worker 0 both receive on 10.0.0.1:5001"):
        admitted.admit(ledger, "twins", twins, 8)


def test_admissions() -> None:
    job = admit(JobLedger(Capabilities(lanes=256)), "job", 32)
    first, second = job.admissions
    assert (first.worker_id, second.worker_id, first.num_workers) == (0, 1, 2)
    assert (first.job_id, first.token, first.epoch) == (job.job_id, job.token, job.epoch)
    assert (first.slot_count, first.lanes, first.switch) == (32, 256, SWITCH)


def test_a_worker_may_reach_the_switch_its_own_way() -> None:
    workers = [dataclasses.replace(one, switch=("127.0.0.1", 9000 + one.port)) for one in endpoints(2)]
    job = admitted.admit(JobLedger(Capabilities(slots=8)), "job", workers, 8)
    assert [admission.switch for admission in job.admissions] == [("127.0.0.1", 9000), ("127.0.0.1", 9001)]
    ledger, request = JobLedger(Capabilities(slots=8)), JobRequest("job", 2)
    ledger.reserve(request, 8)
    with pytest.raises(JobRefusedError, match="the switch has no address yet"):
        ledger.admit(request, endpoints(2), token=1, unix_seconds=1)


def test_a_restart_needs_another_token() -> None:
    ledger = JobLedger(Capabilities(slots=8))
    job = admit(ledger, "job", 8)
    with pytest.raises(ValueError, match="a new token"):
        renew(ledger, job, token=job.token, now=1)


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("port", 510, "a switch port is 0 to 509"),
        ("port", -1, "a switch port is 0 to 509"),
        ("ip", "10.0.0", "expected an IPv4 address"),
        ("ip", "::1", "expected an IPv4 address"),
        ("mac", "02:00:00:00:00", "expected a MAC address"),
        ("mac", "02-00-00-00-00-01", "expected a MAC address"),
        ("udp_port", 0, "a UDP port is 1 to 65535"),
    ],
)
def test_endpoints_are_checked(field: str, value: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(endpoints(1)[0], **{field: value})
