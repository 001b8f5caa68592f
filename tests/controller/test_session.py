"""A session's translation of a switch's errors, and its end when another controller was primary."""

import queue
from pathlib import Path
from types import SimpleNamespace

import grpc
import pytest

from controller.errors import NotPrimaryError, SwitchRefusedError, SwitchUnreachableError
from controller.session import P4RuntimeSession
from sim.switch.p4runtime import P4RuntimeServer
from sim.switch.ports import Chassis, UdpPorts

DEADLINE_S = 60.0


class Failing(grpc.RpcError):
    """The result of every request."""

    def __init__(self, code: grpc.StatusCode) -> None:
        self._code = code

    def code(self) -> grpc.StatusCode:
        return self._code

    def details(self) -> str:
        return "as the test wants it"

    def trailing_metadata(self) -> tuple[()]:
        return ()


def session_that_fails(code: grpc.StatusCode) -> P4RuntimeSession:
    def fail(_: object, timeout: float) -> None:
        raise Failing(code)

    session = object.__new__(P4RuntimeSession)
    session.address, session.device_id, session.timeout_s = "here", 1, 1.0
    session._lost, session._primary = False, True
    session.stub = SimpleNamespace(GetForwardingPipelineConfig=fail)
    return session


def test_a_switch_without_a_program_has_no_cookie() -> None:
    assert session_that_fails(grpc.StatusCode.FAILED_PRECONDITION).pipeline_cookie() == 0


@pytest.mark.parametrize(
    ("code", "error"),
    [
        (grpc.StatusCode.INTERNAL, SwitchRefusedError),
        (grpc.StatusCode.UNKNOWN, SwitchRefusedError),
        (grpc.StatusCode.DEADLINE_EXCEEDED, SwitchUnreachableError),
        (grpc.StatusCode.UNAVAILABLE, SwitchUnreachableError),
    ],
)
def test_a_switch_that_cannot_say_which_program_it_has_is_not_taken_for_an_empty_one(
    code: grpc.StatusCode, error: type[Exception]
) -> None:
    """Otherwise the switch would be given a program anew, and its jobs would begin again."""
    session = session_that_fails(code)
    with pytest.raises(error):
        session.pipeline_cookie()
    # Whatever answers at the address later may be a switch that has restarted.
    assert session.lost == (code is grpc.StatusCode.UNAVAILABLE)


def test_a_session_is_over_once_another_controller_was_primary(tmp_path: Path) -> None:
    """The other controller may have changed everything, also while this one compared entries with those that it read."""
    changes: queue.SimpleQueue[None] = queue.SimpleQueue()
    with (
        UdpPorts([(0, 0)]) as ports,
        P4RuntimeServer(Chassis(ports), "127.0.0.1:0", cache_dir=tmp_path) as switch,
    ):
        session = P4RuntimeSession(switch.address, 1, 1, DEADLINE_S, on_change=lambda: changes.put(None))
        changes.get(timeout=DEADLINE_S)
        assert session.primary
        other = P4RuntimeSession(switch.address, 1, 2, DEADLINE_S)
        changes.get(timeout=DEADLINE_S)
        assert not session.primary
        other.tear_down()
        changes.get(timeout=DEADLINE_S)
        assert not session.primary
        with pytest.raises(NotPrimaryError, match="another controller became primary at 127"):
            session.pipeline_cookie()
        session.tear_down()
        again = P4RuntimeSession(switch.address, 1, 1, DEADLINE_S)
        assert again.primary
        assert again.pipeline_cookie() == 0
        again.tear_down()
