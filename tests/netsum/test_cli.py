"""The command: helps and error messages."""

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
        timeout=400,
        check=False,
        env={**os.environ, "COLUMNS": "120", **environment},
    )


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ("frobnicate", "there is no command 'frobnicate': expected allreduce, doctor"),
        ("testbed frobnicate", "there is no command 'frobnicate': expected up, down"),
        ("job list --frob", "there is no option --frob"),
        ("allreduce --worker 2", "there is no option --worker; did you mean --workers"),
        ("job list a b", "unexpected argument 'a b'"),
        ("job list --controller", "--controller needs a value (`netsum job list --help`)"),
        ("doctor --json=1", "--json takes no value (`netsum doctor --help`)"),
        ("sim run quick --set x", "--set: expected KEY=VALUE, found 'x'"),
        ("job create", "NAME is missing: name of the job"),
        ("job create x", "--world-size is missing: number of workers"),
        (
            "job create x --world-size two",
            "--world-size: expected a whole number between 1 and 4,096, not 'two'",
        ),
        ("job create a;b --world-size 2", "NAME: expected a name of 1 to 100 letters, digits, dots, dashes"),
        ("job create x --world-size 2 --quorum 3", "--quorum: a quorum is 1 to 2, the job's workers, not 3"),
        ("run digits --workers 0", "--workers: expected a whole number between 1 and 32, not '0'"),
        ("run digits --workers 33", "--workers: expected a whole number between 1 and 32, not '33'"),
        ("run digits --lanes 65", "--lanes: expected 64, 256, 512 or 1024, not '65'"),
        ("run digits --drop-percent 99", "--drop-percent: expected a number between 0.0 and 50.0, not '99'"),
        ("run digits --switch tofino", "--switch: expected embedded or bmv2, not 'tofino'"),
        ("repro --over nothing -- true", "--over: expected exact, plain or gloo, not 'nothing'"),
        ("switch serve --ports 510", "--ports: expected a whole number between 0 and 509, not '510'"),
        ("job create x --world-size 2 --queue inf", "--queue: expected a number of at least 0.0, not 'inf'"),
        (
            "job create x --world-size 2 --weight nan",
            "--weight: expected a number of at least 0.0, not 'nan'",
        ),
        ("controller serve --grace 1e300", "--grace: expected a number of at most 1,000,000,000,000,000"),
        (f"bench torch --runs {1 << 63}", "--runs: expected a number of at most 9,223,372,036"),
        ("switch serve --cpu-port 511", "--cpu-port: expected a whole number between 1 and 510, not '511'"),
        ("switch serve --cpu-port 2", "port 2 cannot lead to 127.0.0.1:28277 and to the controller"),
        ("switch serve --udp-ports x", "--udp-ports: expected ports such as 5000,5001, not 'x'"),
        ("switch serve --spin-us 5", "--spin-us works only with --interface and the embedded engine"),
        ("switch serve --interface eth0", "--interface: expected PORT@NAME"),
        ("testbed link h1 s1 sideways", "expected up or down, not 'sideways'"),
        ("testbed link h1 s1", "expected up, down, --rate"),
        ("testbed link h1 s1 --rate fast", "--rate: expected a rate above 0"),
        ("testbed up star-4 --queue 4294967296", "--queue: expected a whole number between 1 and 1,000,000"),
        ("testbed up nonesuch", "there is no topology 'nonesuch'"),
        ("testbed up star-4 --rate fast", "--rate: expected a rate above 0"),
        ("job create x --world-size 2 --slots 3", "expected a power of two"),
        ("job list --controller nowhere", "expected an address such as"),
        ("allreduce --sizes 4kb", "a size is a whole number of bytes"),
        ("allreduce -b 4K", "needs both --minbytes and --maxbytes"),
        ("controller serve", "no switches are given"),
        (
            "controller serve --config pyproject.toml",
            "pyproject.toml: unknown keys build-system, project, tool; expected one of switch, host, link",
        ),
        (
            "sim run quick --set job.workers=1" + 5000 * "0",
            "--set job.workers: the text: expected numbers of at most 4,300 digits",
        ),
        (
            "sim run quick --set job.workers=" + 3000 * "[",
            "--set job.workers: the text: expected objects and lists that are nested less deeply",
        ),
    ],
)
def test_a_wrong_argument_is_named(words: str, complaint: str) -> None:
    done = netsum(*words.split())
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith("netsum: ")
    assert complaint in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not done.stdout


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ("job create x --world-size 2 --slots 3", "slots: expected a power of two"),
        ("job create x --quorum 9 --world-size 2", "--quorum: a quorum is 1 to 2"),
        ("allreduce --slots 3", "slots: expected a power of two"),
    ],
)
def test_an_argument_is_checked_before_a_testbed_is_looked_up(words: str, complaint: str) -> None:
    done = netsum(*words.split(), NETSUM_TESTBED="nonesuch")
    assert done.returncode == 2, done.stderr
    assert complaint in done.stderr


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
    assert done.returncode == 2
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
        _, said = process.communicate(timeout=400)
        assert process.returncode == 0, said
        assert "Traceback" not in said


def test_names_are_imported_when_they_are_used() -> None:
    script = """
import sys
import netsum
assert not {"numba", "numpy", "grpc"} & sys.modules.keys()
from importlib.util import find_spec
for name in netsum.__all__:
    if name not in ("Compression", "compress", "strategy") or find_spec("torch"):
        getattr(netsum, name)
import host_agent.communicator
assert netsum.Communicator is host_agent.communicator.Communicator
assert issubclass(netsum.JoinError, netsum.NetsumError)
assert callable(netsum.join)
assert set(netsum.__all__) == set(dir(netsum))
try:
    netsum.nothing
except AttributeError as error:
    print(error)
"""
    said = subprocess.check_output([sys.executable, "-c", script], text=True)
    assert said == "module 'netsum' has no attribute 'nothing'\n"


@pytest.mark.parametrize("name", ["Compression", "compress", "strategy"])
def test_without_pytorch_a_name_that_needs_it_says_so(name: str) -> None:
    script = f"""
import sys
sys.modules["torch"] = None  # As if it were not installed.
import netsum
try:
    from netsum import {name}
except ModuleNotFoundError as missing:
    print(missing.name, missing, missing.__cause__, missing.__suppress_context__)
try:
    netsum.{name}
except AttributeError as missing:
    print(missing)
from netsum import *
import inspect
print(hasattr(netsum, "{name}"), "{name}" in globals(), "Communicator" in dict(inspect.getmembers(netsum)))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    reason = f"netsum.{name} needs PyTorch: pip install 'torch>=2.13'"
    assert done.stdout == f"torch {reason} None True\n{reason}\nFalse False True\n"
