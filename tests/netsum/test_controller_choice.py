"""Choice of a command's controller, if one listens at the default address and testbeds have others."""

import json
import os
import pty
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

import host_agent.job_api
from controller.service.client import OperatorClient
from netsum.cli import completions
from netsum.cli.app import app
from tests.free_ports import free_port
from topologies import run_folder
from topologies.runs import new_run_id

DEADLINE_S = 400.0

AT_A_TERMINAL = """
import sys, host_agent.job_api
from pathlib import Path
from topologies import run_folder
host_agent.job_api.DEFAULT_CONTROLLER, run_folder.RUNNING = sys.argv[1], Path(sys.argv[2])
del sys.argv[1:3]
from netsum.cli import main
main()
"""


class Place:
    """A machine with one controller at the default address, and another that testbeds have."""

    def __init__(self, default: str, of_testbeds: str, running: Path) -> None:
        self.default, self.of_testbeds, self.running = default, of_testbeds, running

    def bring_up(self, name: str, *, controller: bool = True, run_id: str = "") -> None:
        """Describe a testbed as its keeper does."""
        folder = self.running / name
        folder.mkdir()
        (folder / "controller.sock").symlink_to(self.of_testbeds.removeprefix("unix:"))
        state = {
            "name": name,
            "ready": True,
            "folder": str(folder),
            "links": [],
            "keeper": {"pid": os.getpid(), "run_id": run_id or new_run_id()},
            "controller": {"pid": os.getpid()} if controller else None,
            "switches": {
                "s1": {"p4runtime": "unix:/none", "ports": {"s1-eth1": 1}, "namespace_pid": os.getpid()}
            },
        }
        (folder / "testbed.json").write_text(json.dumps(state))


@pytest.fixture(scope="module")
def addresses(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    command = [sys.executable, "-P", "-m", "netsum.local_service", "--places", "2", "--lanes", "64"]
    services = [
        subprocess.Popen([*command, *more], cwd=tmp_path_factory.mktemp("service"), stdout=subprocess.PIPE)
        for more in (["--listen", f"127.0.0.1:{free_port()}"], [])
    ]
    try:
        first, second = (json.loads(service.stdout.readline()) for service in services if service.stdout)
        yield first["address"], second["address"]
    finally:
        for service in services:
            service.terminate()
        for service in services:
            service.communicate(timeout=DEADLINE_S)


@pytest.fixture
def place(addresses: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    with tempfile.TemporaryDirectory() as running:  # With a short path, as sockets need.
        monkeypatch.setattr(run_folder, "RUNNING", Path(running))
        monkeypatch.setattr(host_agent.job_api, "DEFAULT_CONTROLLER", addresses[0])
        for name in ("NETSUM_CONTROLLER", "NETSUM_TESTBED"):
            monkeypatch.delenv(name, raising=False)
        for address in addresses:
            with OperatorClient(address) as client:
                for job in client.jobs():
                    client.delete_job(job.name)
        yield Place(*addresses, Path(running))


def netsum(*words: str, script: str = "") -> Result:
    return CliRunner().invoke(app, words, input=script, prog_name="netsum")


def jobs(address: str) -> list[str]:
    with OperatorClient(address) as client:
        return [job.name for job in client.jobs()]


def create(*more: str) -> Result:
    return netsum("job", "create", "precious", "--world-size", "2", *more)


def test_the_controller_that_nobody_named_is_named_beside_the_data(place: Place) -> None:
    done = netsum("job", "list", "--json")
    assert json.loads(done.stdout) == []
    assert done.stderr == f"netsum: asking the controller at {place.default}\n"
    assert create().exit_code == 0
    assert (jobs(place.default), jobs(place.of_testbeds)) == (["precious"], [])


def test_the_only_testbed_is_asked_where_nothing_listens_at_the_default_address(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_agent.job_api, "DEFAULT_CONTROLLER", f"127.0.0.1:{free_port()}")
    place.bring_up("one")
    done = create("--json")
    assert json.loads(done.stdout)["name"] == "precious"
    assert done.stderr == "netsum: asking the controller of the testbed one\n"
    assert netsum("job", "delete", "precious").exit_code == 0
    assert jobs(place.of_testbeds) == []
    place.bring_up("two")
    assert "several testbeds are up: name one of one, two by --testbed" in netsum("job", "list").stderr


def test_testbeds_do_not_take_commands_from_the_controller_at_the_default_address(place: Place) -> None:
    place.bring_up("one")
    for name, others in (("", "one"), ("two", "one or two")):
        if name:
            place.bring_up(name)
        done = netsum("job", "list", "--json")
        assert json.loads(done.stdout) == []
        assert (
            done.stderr
            == f"netsum: asking the controller at {place.default}, not that of the testbed {others}\n"
        )


@pytest.mark.parametrize("verb", ["create", "restart", "delete"])
def test_without_a_terminal_nothing_is_changed_where_two_controllers_could_be_meant(
    place: Place, verb: str
) -> None:
    place.bring_up("one")
    for address in (place.default, place.of_testbeds):
        assert create("--controller", address).exit_code == 0
    more = ("--world-size", "2") if verb == "create" else ()
    done = netsum("job", verb, "precious", *more)
    assert done.exit_code == 1
    assert done.stderr == (
        f"netsum: the controller at {place.default} or that of the testbed one could be meant: "
        "name one by --controller or --testbed; nothing was changed\n"
    )
    for address in (place.default, place.of_testbeds):
        with OperatorClient(address) as client:
            assert (client.job("precious").restarts, len(client.jobs())) == (0, 1)


@pytest.mark.parametrize("where", ["option", "environment"])
def test_a_controller_that_is_named_is_taken_in_silence(
    place: Place, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.bring_up("one")
    for kind, value, address in (
        ("controller", place.default, place.default),
        ("testbed", "one", place.of_testbeds),
    ):
        monkeypatch.delenv("NETSUM_CONTROLLER", raising=False)
        if where == "environment":
            monkeypatch.setenv(f"NETSUM_{kind.upper()}", value)
        options = [f"--{kind}", value] if where == "option" else []
        done = create(*options)
        assert (done.exit_code, done.stderr) == (0, "")
        assert jobs(address) == ["precious"]
        assert netsum("job", "delete", "precious", *options).exit_code == 0
        assert jobs(address) == []


def test_an_option_goes_before_the_environment_and_two_are_refused(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.bring_up("one")
    done = create("--controller", place.default, "--testbed", "one")
    assert (done.exit_code, jobs(place.default), jobs(place.of_testbeds)) == (2, [], [])
    assert done.stderr == "netsum: --controller and --testbed name two controllers: give one of them\n"
    monkeypatch.setenv("NETSUM_CONTROLLER", place.default)
    assert create("--testbed", "one").exit_code == 0
    assert (jobs(place.default), jobs(place.of_testbeds)) == ([], ["precious"])


def test_crashed_testbeds_and_those_without_a_controller_are_not_meant(place: Place) -> None:
    place.bring_up("crashed", run_id="1-1-1")
    place.bring_up("alone", controller=False)
    done = create()
    assert (done.exit_code, done.stderr) == (0, f"netsum: asking the controller at {place.default}\n")
    assert jobs(place.default) == ["precious"]


def test_the_ports_of_a_testbed_without_a_controller_need_its_name_beside_another_controller(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.bring_up("alone", controller=False)
    done = netsum("switch", "ports", "--json")
    assert [port["peer"] for port in json.loads(done.stdout)] == ["worker0", "worker1"]
    assert done.stderr == f"netsum: asking the controller at {place.default}, not that of the testbed alone\n"
    assert [
        port["name"] for port in json.loads(netsum("switch", "ports", "--testbed", "alone", "--json").stdout)
    ] == ["s1-eth1"]
    monkeypatch.setattr(host_agent.job_api, "DEFAULT_CONTROLLER", f"127.0.0.1:{free_port()}")
    done = netsum("switch", "ports", "--json")
    assert [port["name"] for port in json.loads(done.stdout)] == ["s1-eth1"]
    assert done.stderr == "netsum: asking the testbed alone, which has no controller\n"


def test_a_shell_on_a_switch_needs_its_name_where_two_could_be_meant(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.bring_up("one")
    monkeypatch.setattr("netsum.cli.shell.DEFAULT_P4RUNTIME", place.default)  # Something listens there.
    done = netsum("shell", script="write_nothing()")
    assert done.exit_code == 1
    assert f"the switch at {place.default} and the testbed one are both up" in done.stderr


def test_completion_asks_nobody_and_says_nothing(place: Place, capfd: pytest.CaptureFixture[str]) -> None:
    place.bring_up("one")
    create("--controller", place.default)
    assert completions.jobs("") == ["precious"]
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    ("answer", "left"), [("y", []), ("n", ["precious"]), ("", ["precious"]), ("\x04", ["precious"])]
)
def test_at_a_terminal_a_command_that_destroys_asks_first(place: Place, answer: str, left: list[str]) -> None:
    place.bring_up("one")
    for address in (place.default, place.of_testbeds):
        create("--controller", address)
    ours, theirs = pty.openpty()
    command = [
        sys.executable,
        "-c",
        AT_A_TERMINAL,
        place.default,
        str(place.running),
        "job",
        "delete",
        "precious",
    ]
    with subprocess.Popen(command, stdin=theirs, stdout=subprocess.PIPE, stderr=theirs) as process:
        os.close(theirs)
        said = b""
        while b"[y/N] " not in said:
            said += os.read(ours, 1000)
        os.write(ours, answer.encode() + (b"" if answer == "\x04" else b"\n"))
        out, _ = process.communicate(timeout=DEADLINE_S)
        os.close(ours)
    assert (
        f"the controller at {place.default} or that of the testbed one could be meant: go on with the first?"
        in said.decode()
    )
    assert (process.returncode, out) == ((0, b"the job precious has ended\n") if not left else (1, b""))
    assert (jobs(place.default), jobs(place.of_testbeds)) == (left, ["precious"])
