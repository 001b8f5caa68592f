import json
from typing import Any

import pytest

from host_agent.errors import AdmissionError
from host_agent.wire import Admission
from host_agent.wire.constants import UDP_PORT

GOOD: dict[str, Any] = {
    "job_id": 3,
    "token": 0xDEADBEEF,
    "epoch": 1_700_000_000,
    "worker_id": 1,
    "num_workers": 4,
    "slot_count": 64,
    "lanes": 256,
    "switch": ("10.0.0.254", 28275),
}


def test_json_and_back() -> None:
    admission = Admission(**GOOD)
    assert Admission.from_json(admission.to_json()) == admission


def test_the_switch_has_a_default() -> None:
    members = {name: value for name, value in GOOD.items() if name != "switch"}
    assert Admission.from_json(json.dumps(members)).switch == ("127.0.0.1", UDP_PORT)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("job_id", 0),
        ("job_id", 256),
        ("job_id", "3"),
        ("job_id", True),
        ("token", -1),
        ("token", 2**32),
        ("epoch", 0),
        ("epoch", 1.5),
        ("worker_id", 4),
        ("worker_id", -1),
        ("num_workers", 0),
        ("num_workers", 33),
        ("slot_count", 0),
        ("slot_count", 48),
        ("slot_count", 8192),
        ("lanes", 100),
        ("switch", "10.0.0.254"),
        ("switch", ("", 28275)),
        ("switch", ("10.0.0.254", 0)),
        ("switch", ("10.0.0.254", 70_000)),
        ("switch", None),
    ],
)
def test_what_no_switch_grants_is_refused_by_name(name: str, value: Any) -> None:
    with pytest.raises(AdmissionError, match=name):
        Admission(**GOOD | {name: value})
    with pytest.raises(AdmissionError, match=name):
        Admission.from_json(json.dumps(GOOD | {name: value}))


@pytest.mark.parametrize("text", ["", "{", "[]", "7", b"\xff\xfe", "null"])
def test_what_is_no_json_object_is_refused(text: str | bytes) -> None:
    with pytest.raises(AdmissionError):
        Admission.from_json(text)


def test_missing_and_unknown_members_are_named() -> None:
    members = {name: value for name, value in GOOD.items() if name != "token"} | {"colour": "red"}
    with pytest.raises(AdmissionError, match="colour, token"):
        Admission.from_json(json.dumps(members))
