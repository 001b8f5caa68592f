"""The command: helps, and says what is wrong in a sentence."""

import os
import signal
import subprocess
import sys

import pytest

COMMAND = [sys.executable, "-c", "from netsum.cli import main; main()"]


def netsum(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *arguments],
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
        env={**os.environ, "COLUMNS": "120", **environment},
    )


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ("frobnicate", "No such command"),
        ("run digits --workers 0", "Invalid value for '--workers'"),
        ("run digits --workers 33", "Invalid value for '--workers'"),
        ("run digits --lanes 65", "Invalid value for '--lanes'"),
        ("run digits --drop-percent 99", "Invalid value for '--drop-percent'"),
        ("run digits --switch tofino", "Invalid value for '--switch'"),
        ("switch serve --ports 0", "Invalid value for '--ports'"),
    ],
)
def test_a_wrong_argument_is_named(words: str, complaint: str) -> None:
    done = netsum(*words.split())
    assert done.returncode == 2
    assert complaint in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("switch serve --p4runtime 0.0.0.0:0", "could be reached from other machines"),
        (
            "switch serve --p4runtime 127.0.0.1:0 --program /none --p4info /none",
            "cannot read /none: No such file",
        ),
    ],
)
def test_a_foreseeable_fault_is_a_sentence(words: str, sentence: str) -> None:
    done = netsum(*words.split())
    assert done.returncode == 1
    assert done.stderr.startswith("netsum")
    assert sentence in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_the_switch_serves_until_it_is_interrupted() -> None:
    with subprocess.Popen(
        [*COMMAND, "switch", "serve", "--p4runtime", "127.0.0.1:0", "--udp-base", "0", "--ports", "2"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("ready: P4Runtime 127.0.0.1:")
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=110)
        assert process.returncode == 0, said
        assert "Traceback" not in said


def test_names_are_imported_when_they_are_used() -> None:
    script = """
import sys
import netsum
assert "numba" not in sys.modules
for name in netsum.__all__:
    getattr(netsum, name)
import host_agent
assert netsum.Communicator is host_agent.Communicator
try:
    netsum.nothing
except AttributeError as error:
    print(error)
"""
    said = subprocess.check_output([sys.executable, "-c", script], text=True)
    assert said == "module 'netsum' has no attribute 'nothing'\n"
