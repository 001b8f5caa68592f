"""A session's translation of a switch's errors."""

from types import SimpleNamespace

import grpc
import pytest

from controller.errors import SwitchRefusedError, SwitchUnreachableError
from controller.session import P4RuntimeSession


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
    session.address, session.device_id, session.timeout_s, session._lost = "here", 1, 1.0, False
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
    with pytest.raises(error):
        session_that_fails(code).pipeline_cookie()
