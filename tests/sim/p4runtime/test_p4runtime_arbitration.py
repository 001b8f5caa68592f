"""Who is primary: every rule of the specification's sections on arbitration, without gRPC."""

from collections.abc import Callable
from typing import Any

import pytest

from netsum_common.p4rt import code_pb2, p4runtime_pb2
from sim.switch.p4runtime.arbitration import MAX_CONTROLLERS, Arbiter, Controller
from sim.switch.p4runtime.status_errors import Code, P4RuntimeError

DEVICE = 7


class Client:
    """A controller and the messages that it received."""

    def __init__(self) -> None:
        self.answers: list[Any] = []
        self.controller = Controller(self.answers.append)

    def ask(
        self,
        arbiter: Arbiter,
        low: int | None = None,
        high: int = 0,
        device: int = DEVICE,
        role: str | None = None,
    ) -> None:
        request = p4runtime_pb2.MasterArbitrationUpdate(device_id=device)
        if low is not None:
            request.election_id.high, request.election_id.low = high, low
        if role is not None:
            request.role.name = role
        arbiter.update(self.controller, request)

    def last(self) -> tuple[int, tuple[int, int] | None]:
        """The last notification: (code, election id)."""
        answer = self.answers[-1].arbitration
        assert answer.device_id == DEVICE
        election_id = (
            (answer.election_id.high, answer.election_id.low) if answer.HasField("election_id") else None
        )
        return answer.status.code, election_id


@pytest.fixture
def arbiter() -> Arbiter:
    return Arbiter(DEVICE)


def refused(code: Code, call: Callable[..., object], *args: Any, **kwargs: Any) -> None:
    with pytest.raises(P4RuntimeError) as caught:
        call(*args, **kwargs)
    assert caught.value.code is code


def test_first_controller_is_primary(arbiter: Arbiter) -> None:
    one = Client()
    one.ask(arbiter, 5)
    assert one.last() == (code_pb2.OK, (0, 5))
    arbiter.check_writer("", (0, 5))


def test_lower_id_is_backup_and_only_it_is_notified(arbiter: Arbiter) -> None:
    one, two = Client(), Client()
    one.ask(arbiter, 5)
    two.ask(arbiter, 4)
    assert two.last() == (code_pb2.ALREADY_EXISTS, (0, 5))
    assert len(one.answers) == 1
    refused(Code.PERMISSION_DENIED, arbiter.check_writer, "", (0, 4))


def test_higher_id_takes_over_and_all_are_notified(arbiter: Arbiter) -> None:
    one, two = Client(), Client()
    one.ask(arbiter, 5)
    two.ask(arbiter, 0, high=1)
    assert one.last() == (code_pb2.ALREADY_EXISTS, (1, 0))
    assert two.last() == (code_pb2.OK, (1, 0))
    refused(Code.PERMISSION_DENIED, arbiter.check_writer, "", (0, 5))


def test_when_the_primary_leaves_the_next_takes_over(arbiter: Arbiter) -> None:
    one, two = Client(), Client()
    one.ask(arbiter, 5)
    two.ask(arbiter, 9)
    arbiter.leave(two.controller)
    assert one.last() == (code_pb2.OK, (0, 5))
    arbiter.check_writer("", (0, 5))


def test_when_a_backup_leaves_no_controller_is_notified(arbiter: Arbiter) -> None:
    one, two = Client(), Client()
    one.ask(arbiter, 5)
    two.ask(arbiter, 4)
    arbiter.leave(two.controller)
    assert len(one.answers) == 1


def test_a_primary_can_step_back(arbiter: Arbiter) -> None:
    one, two = Client(), Client()
    one.ask(arbiter, 5)
    two.ask(arbiter, 4)
    one.ask(arbiter, 3)
    assert one.last() == (code_pb2.ALREADY_EXISTS, (0, 4))
    assert two.last() == (code_pb2.OK, (0, 4))


def test_when_a_primary_raises_its_id_the_others_are_notified(arbiter: Arbiter) -> None:
    one, two = Client(), Client()
    one.ask(arbiter, 5)
    two.ask(arbiter, 4)
    one.ask(arbiter, 6)
    assert two.last() == (code_pb2.ALREADY_EXISTS, (0, 6))


def test_without_an_election_id_one_is_never_primary(arbiter: Arbiter) -> None:
    one = Client()
    one.ask(arbiter)
    assert one.last() == (code_pb2.NOT_FOUND, None)
    refused(Code.PERMISSION_DENIED, arbiter.check_writer, "", None)
    two = Client()
    two.ask(arbiter, 0)
    assert two.last() == (code_pb2.OK, (0, 0))


def test_same_id_twice_is_invalid(arbiter: Arbiter) -> None:
    one, two = Client(), Client()
    one.ask(arbiter, 5)
    refused(Code.INVALID_ARGUMENT, two.ask, arbiter, 5)
    assert arbiter.primary("") is one.controller


def test_changing_to_a_taken_id_is_invalid(arbiter: Arbiter) -> None:
    one, two = Client(), Client()
    one.ask(arbiter, 5)
    two.ask(arbiter, 4)
    refused(Code.INVALID_ARGUMENT, two.ask, arbiter, 5)


def test_other_devices_are_not_found_and_cannot_be_moved_to(arbiter: Arbiter) -> None:
    one = Client()
    refused(Code.NOT_FOUND, one.ask, arbiter, 5, device=8)
    one.ask(arbiter, 5)
    refused(Code.FAILED_PRECONDITION, one.ask, arbiter, 5, device=8)


def test_roles_are_apart(arbiter: Arbiter) -> None:
    one, two = Client(), Client()
    one.ask(arbiter, 5)
    two.ask(arbiter, 5, role="sdn")
    assert two.last() == (code_pb2.OK, (0, 5))
    assert two.answers[-1].arbitration.role.name == "sdn"
    assert arbiter.primaries() == [one.controller, two.controller]
    arbiter.check_writer("sdn", (0, 5))
    refused(Code.PERMISSION_DENIED, arbiter.check_writer, "other", (0, 5))
    refused(Code.FAILED_PRECONDITION, two.ask, arbiter, 6, role="other")


def test_role_configurations_are_refused(arbiter: Arbiter) -> None:
    request = p4runtime_pb2.MasterArbitrationUpdate(device_id=DEVICE)
    request.role.config.type_url = "x"
    refused(Code.INVALID_ARGUMENT, arbiter.update, Client().controller, request)


def test_too_many_controllers_are_refused(arbiter: Arbiter) -> None:
    clients = [Client() for _ in range(MAX_CONTROLLERS + 1)]
    for number, client in enumerate(clients[:-1]):
        client.ask(arbiter, number)
    refused(Code.RESOURCE_EXHAUSTED, clients[-1].ask, arbiter, 99)
    arbiter.leave(clients[0].controller)
    clients[-1].ask(arbiter, 99)
    assert clients[-1].last() == (code_pb2.OK, (0, 99))


def test_without_a_connection_a_client_may_write_without_an_election_id_as_on_bmv2(arbiter: Arbiter) -> None:
    arbiter.check_writer("", None)
    refused(Code.PERMISSION_DENIED, arbiter.check_writer, "", (0, 1))
