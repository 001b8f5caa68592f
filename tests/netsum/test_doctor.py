"""Findings, messages and exit status of `netsum doctor`."""

import json
import os
import shutil
import socket
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from netsum.cli.app import app
from netsum.doctor import examination, kernel, software
from netsum.doctor.finding import Finding

WELL = Finding("Something", "is here")
LACKING = Finding("Thing", "not installed", "testbeds", "apt install thing")
UNTRIED = Finding("Namespaces", "not tried", "testbeds", "run it as root", tried=False)
REQUIRED = Finding("Core", "gone", "every run", "bring it back", required=True)


def doctor(*options: str) -> Result:
    return CliRunner().invoke(app, ["doctor", *options])


def finds(monkeypatch: pytest.MonkeyPatch, *findings: Finding) -> None:
    checks = [lambda finding=finding: finding for finding in findings]
    monkeypatch.setattr(examination, "CHECKS", {"Group": checks})


def test_it_names_what_is_missing_and_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    lines = doctor().stdout.splitlines()
    for tool in ("BMv2", "p4c"):
        place = lines.index(f"--  {tool}: not installed")
        assert "needed for: " in lines[place + 1]
        assert "https://github.com/p4lang/" in lines[place + 2]


def test_every_check_runs_here_and_says_something() -> None:
    checks = json.loads(doctor("--json").stdout)["checks"]
    assert len(checks) == sum(map(len, examination.CHECKS.values()))
    for check in checks:
        assert check["subject"]
        assert check["found"]
        assert check["well"] == (not check["remedy"]) == (not check["needed_for"])


@pytest.mark.root
def test_an_interface_whose_mtu_may_be_too_large_for_xdp_is_named() -> None:
    name = f"long{os.getpid() % 1_000_000}"
    subprocess.run(["ip", "link", "add", name, "mtu", "9000", "type", "veth"], check=True)
    try:
        found = kernel.xdp().found
    finally:
        subprocess.run(["ip", "link", "del", name], check=True)
    if "programs can be loaded" not in found:
        pytest.skip(found)
    assert f"{name} (9,000)" in found
    assert "a driver may refuse programs, which then run behind it (generic, slower)" in found


@pytest.mark.parametrize(
    ("findings", "options", "status"),
    [
        ([WELL], [], 0),
        ([WELL], ["--strict"], 0),
        ([WELL, LACKING], [], 0),
        ([WELL, LACKING], ["--strict"], 1),
        ([WELL, REQUIRED], [], 1),
        ([WELL, UNTRIED], [], 0),
        ([WELL, UNTRIED], ["--strict"], 1),
    ],
)
def test_the_exit_status_says_whether_what_is_needed_is_there(
    monkeypatch: pytest.MonkeyPatch, findings: list[Finding], options: list[str], status: int
) -> None:
    finds(monkeypatch, *findings)
    assert doctor(*options).exit_code == status
    result = doctor("--json", *options)
    assert (result.exit_code, json.loads(result.stdout)["well"]) == (status, status == 0)


def test_the_keys_of_json_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    finds(monkeypatch, LACKING)
    assert json.loads(doctor("--json").stdout) == {
        "well": True,
        "checks": [
            {
                "group": "Group",
                "subject": "Thing",
                "well": False,
                "tried": True,
                "required": False,
                "found": "not installed",
                "needed_for": "testbeds",
                "remedy": "apt install thing",
            }
        ],
    }


def test_marks(monkeypatch: pytest.MonkeyPatch) -> None:
    finds(monkeypatch, WELL, LACKING, REQUIRED, UNTRIED)
    assert doctor().stdout.splitlines() == [
        "Group",
        "ok  Something: is here",
        "--  Thing: not installed",
        "    needed for: testbeds",
        "    to do: apt install thing",
        "!!  Core: gone",
        "    needed for: every run",
        "    to do: bring it back",
        "??  Namespaces: not tried",
        "    needed for: testbeds",
        "    to do: run it as root",
    ]


def test_a_small_limit_of_buffers_comes_with_the_command_that_raises_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(kernel, "SOCKET_BUFFER_BYTES", 1 << 40)
    finding = kernel.socket_buffer("rmem_max")
    assert finding.remedy == f"sudo sysctl -w net.core.rmem_max={1 << 40}"
    assert not finding.required


def test_without_privileges_nothing_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert kernel.privileges().found == "no"
    for finding in (kernel.namespaces(), kernel.queueing("htb", "links"), kernel.packet_sockets()):
        assert (finding.well, finding.tried) == (False, False)
        assert finding.found == "not tried, as this is not root"
        assert finding.remedy


def test_what_the_kernel_refuses_is_reported_in_its_words(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(97, "Address family not supported by protocol")

    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(socket, "socket", refuse)
    assert "Address family not supported" in kernel.packet_sockets().found


@pytest.mark.root
def test_a_queueing_discipline_the_kernel_lacks_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root, to try")
    if shutil.which("tc") is None:
        pytest.skip("needs tc: apt install iproute2")
    monkeypatch.setitem(kernel._QUEUEING_OPTIONS, "nonesuch", "")
    finding = kernel.queueing("nonesuch", "links with a rate")
    assert "unavailable" in finding.found
    assert finding.needed_for == "links with a rate"


def test_a_program_that_does_not_run_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "thing"
    program.write_text("no program")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    finding = software.tool("Thing", "thing", "testbeds", "apt install thing")
    assert "does not run" in finding.found
    assert finding.remedy == "apt install thing"


def test_a_dissector_of_another_version_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tshark = tmp_path / "tshark"
    tshark.write_text("#!/bin/sh\necho TShark 4.0\n")
    tshark.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert "`netsum wireshark --install` makes it known" in software.tshark().found
    installed = tmp_path / ".local/lib/wireshark/plugins/netsum.lua"
    installed.parent.mkdir(parents=True)
    installed.write_text("-- old")
    assert "is another version" in software.tshark().found


def test_the_compiler_that_makes_the_program_is_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compiler = tmp_path / "p4c-bm2-ss"
    compiler.write_text("#!/bin/sh\necho Version 1.2.5.16\n")
    compiler.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")
    finding = software.p4c()
    assert (finding.well, finding.found) == (True, "Version 1.2.5.16")


def test_a_package_of_the_demonstration_alone_is_not_required(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "netsum.doctor.software.find_spec", lambda name: None if name == "scapy" else find_spec(name)
    )
    assert software.extras().well
    assert software.scapy().required is False


def test_an_environment_in_which_each_process_compiles_its_modules_is_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.setattr(Path, "exists", lambda _: False)
    finding = software.bytecode()
    assert not finding.well
    assert "PYTHONDONTWRITEBYTECODE" in finding.remedy
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    assert software.bytecode().well
