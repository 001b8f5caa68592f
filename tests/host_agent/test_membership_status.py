"""A worker's membership in a job, driven by the controller's messages, in orders that a network can bring them in."""

import pytest

from host_agent.job_api.job_request import JobRequest
from host_agent.job_api.jobs_pb2 import (
    AdmissionTicket,
    Admitted,
    Ended,
    Gathering,
    Left,
    Place,
    Restarted,
    ToWorker,
)
from host_agent.joining import JoinError, NoSlotsError
from host_agent.joining.membership_status import MembershipStatus, Watcher
from host_agent.wire.constants import VERSION

PLACED = ToWorker(place=Place(host="h1", ip="127.0.0.1", lease="secret"))
GATHERING = ToWorker(gathering=Gathering(missing=[1]))


def ticket(epoch: int, packets: int = VERSION) -> AdmissionTicket:
    return AdmissionTicket(
        packets=packets,
        job_id=1,
        token=1,
        epoch=epoch,
        num_workers=2,
        slot_count=4,
        lanes=64,
        switch_ip="127.0.0.1",
        switch_port=1,
    )


ADMITTED = ToWorker(admitted=Admitted(admission=ticket(7), report_s=1.0))
RESTARTED = ToWorker(restarted=Restarted(admission=ticket(8), reason="an operator restarted the job"))
ENDED = ToWorker(ended=Ended(reason="all its workers have left"))


@pytest.fixture
def membership() -> MembershipStatus:
    return MembershipStatus(JobRequest("job", 2).join_message(0, ["127.0.0.1"]))


def feed(membership: MembershipStatus, *messages: ToWorker) -> None:
    for message in messages:
        membership.on_message(message)


def test_an_epoch_is_over_when_workers_are_missing_for_the_next(membership: MembershipStatus) -> None:
    feed(membership, PLACED, GATHERING, ADMITTED)
    feed(membership, ToWorker(left=Left(rank=1, reason="it left")), GATHERING)
    assert membership.trouble == "the job is being restarted: workers [1] have not joined"
    assert membership.opening().attach.epoch == 7
    feed(membership, RESTARTED)
    assert not membership.trouble
    assert membership.restarted("here", 1.0).epoch == 8


def test_a_membership_that_a_new_controller_does_not_know_is_asked_for_again(
    membership: MembershipStatus,
) -> None:
    feed(membership, PLACED, GATHERING)
    assert membership.refused("NOT_FOUND", "job job has ended, or worker 0 has left it")
    assert membership.opening().WhichOneof("message") == "join"
    feed(membership, PLACED, ADMITTED)
    membership.joined("here", 1.0)


@pytest.mark.parametrize("messages", [(), (PLACED,), (PLACED, GATHERING)])
def test_a_refusal_before_the_admission_ends_joining(
    membership: MembershipStatus, messages: tuple[ToWorker, ...]
) -> None:
    feed(membership, *messages)
    assert not membership.refused("RESOURCE_EXHAUSTED", "the switch is full")
    feed(membership, GATHERING, ENDED)  # Messages that were under way.
    with pytest.raises(NoSlotsError, match="the switch is full"):
        membership.joined("here", 1.0)


def test_after_the_admission_a_refusal_is_the_end(membership: MembershipStatus) -> None:
    feed(membership, PLACED, ADMITTED)
    assert not membership.refused("NOT_FOUND", "worker 0 reattached too late")
    assert membership.trouble == "the job ended: worker 0 reattached too late"
    assert not membership.unreachable("refused")


def test_a_controller_that_is_too_busy_to_answer_is_tried_again_until_the_deadline(
    membership: MembershipStatus,
) -> None:
    assert membership.unreachable("nothing answers at here (timed out): start it", busy=True)
    with pytest.raises(
        JoinError, match=r"took longer than 0 s: nothing answers at here \(timed out\): start it"
    ):
        membership.joined("here", 0)
    feed(membership, PLACED, GATHERING, ADMITTED)
    membership.joined("here", 0)


@pytest.mark.parametrize("packets", [0, VERSION + 1])
def test_no_worker_is_admitted_to_switches_whose_packets_have_another_version(
    membership: MembershipStatus, packets: int
) -> None:
    said = f"switches exchange packets of version {packets or 1}, this worker of version {VERSION}: install the same"
    feed(membership, PLACED, ToWorker(admitted=Admitted(admission=ticket(7, packets))))
    with pytest.raises(JoinError, match=said):
        membership.joined("here", 1.0)


def test_a_job_that_a_controller_of_another_version_restarts_has_ended(membership: MembershipStatus) -> None:
    feed(membership, PLACED, ADMITTED)
    feed(membership, ToWorker(restarted=Restarted(admission=ticket(8, packets=0), reason="it came back")))
    assert membership.trouble.startswith(
        "the job ended: the controller's switches exchange packets of version 1"
    )


def test_messages_that_come_after_the_membership_was_given_up_are_dropped(
    membership: MembershipStatus,
) -> None:
    heard: list[str] = []
    watcher = Watcher(
        lambda rank, reason: heard.append(reason),
        heard.append,
        lambda admission, reason: heard.append(reason),
        heard.append,
    )
    feed(membership, PLACED, ADMITTED)
    membership.watch(watcher)
    feed(membership, RESTARTED)
    membership.close()
    feed(membership, ToWorker(left=Left(rank=1, reason="it left")), GATHERING, RESTARTED, PLACED, ENDED)
    assert membership.unreachable("refused")
    assert heard == ["an operator restarted the job"]
    with pytest.raises(JoinError, match="the membership in job job was given up"):
        membership.epoch_after(8, "here", 1.0, lambda: None)
