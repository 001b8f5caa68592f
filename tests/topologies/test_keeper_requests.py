"""Requests to the keeper of a testbed, at its socket; an invalid request must not take the testbed down."""

import json
import socket
import threading
import time
from pathlib import Path

import pytest

from topologies import keeper
from topologies.generated import star
from topologies.keeper import _Keeper

DEADLINE_S = 60.0


@pytest.fixture(name="answering")
def _answering(tmp_path: Path) -> _Keeper:
    return _Keeper(keeper.TestbedPlan("requests", star(2), "embedded", 64, tmp_path, 4000))


def ask(answering: _Keeper, sent: bytes) -> bytes:
    """Return the keeper's answer to some bytes."""
    ours, theirs = socket.socketpair()
    with ours:
        ours.settimeout(DEADLINE_S)
        answered = threading.Thread(target=answering._answer, args=(theirs,))
        answered.start()
        try:
            ours.sendall(sent)
            return ours.makefile("rb").readline()
        except ConnectionError:
            return b""
        finally:
            answered.join(DEADLINE_S)


@pytest.mark.parametrize(
    "sent",
    [
        b"5",
        b"[]",
        b"null",
        b"{}",
        b"nonsense",
        b"\xff",
        b"[" * 50_000,
        b'{"link": 99}',
        b'{"link": -1}',
        b'{"link": null}',
        b'{"link": 0, "rate_bps": "fast"}',
        b'{"link": 0, "colour": 3}',
        b'{"restart": ["s1"]}',
    ],
    ids=lambda sent: repr(sent[:40]),
)
def test_a_request_that_is_none_is_answered_with_a_sentence(answering: _Keeper, sent: bytes) -> None:
    error = json.loads(ask(answering, sent + b"\n"))["error"]
    assert error.startswith("the keeper of the testbed requests does not know the request ")
    assert error.endswith(": use the netsum that brought the testbed up")


def test_a_client_that_sends_slowly_or_without_end_does_not_hold_the_keeper(
    answering: _Keeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeper, "REQUEST_TIMEOUT_S", 0.5)
    assert ask(answering, b'{"restart": ') == b""
    ours, theirs = socket.socketpair()
    with ours:
        answered = threading.Thread(target=answering._answer, args=(theirs,))
        answered.start()
        began = time.monotonic()
        try:
            while answered.is_alive() and time.monotonic() - began < DEADLINE_S:
                ours.sendall(b" ")
                answered.join(0.1)
        except OSError:
            answered.join(DEADLINE_S)
        assert time.monotonic() - began < 5
    assert b"does not know" in ask(answering, b" " * 200_000)
