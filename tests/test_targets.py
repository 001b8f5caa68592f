"""Targets, and the capabilities of compiled programs that are read beside their P4Info."""

import shutil
from pathlib import Path

import pytest

from controller.errors import WrongProgramError
from controller.program import CompiledFiles
from netsum.programs import compiled_program
from netsum_common.targets import (
    PROCESS_TARGETS,
    TARGETS,
    Capabilities,
    ProgramFileError,
    SwitchSetup,
    read_capabilities,
    target_of,
)

PROGRAM = compiled_program(64)


@pytest.fixture
def p4info(tmp_path: Path) -> Path:
    """A P4Info with no capabilities beside it."""
    return Path(shutil.copy(PROGRAM.p4info, tmp_path))


def test_a_programs_json_and_p4info_have_the_same_capabilities() -> None:
    assert read_capabilities(PROGRAM.json) == read_capabilities(PROGRAM.p4info)
    assert read_capabilities(PROGRAM.json) == Capabilities(header_only=True)


def test_a_program_without_capabilities_is_refused_with_what_writes_them(p4info: Path) -> None:
    with pytest.raises(
        WrongProgramError, match=r"capabilities\.toml cannot be read \(No such file .*--describe"
    ):
        CompiledFiles(PROGRAM.json, p4info)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("lanes = ", "is not TOML"),
        ("lanes = 64\n", "does not have the keys architecture, lanes, slots"),
        ('lanes = "64"\n', "does not have the keys"),
    ],
)
def test_capabilities_of_another_netsum_are_refused(p4info: Path, text: str, message: str) -> None:
    kept = p4info.with_name("netsum_v1model_64.capabilities.toml")
    rest = PROGRAM.p4info.with_name(kept.name).read_text().replace("lanes = 64\n", "")
    kept.write_text(text + (rest if '"' in text else ""))
    with pytest.raises(ProgramFileError, match=message):
        read_capabilities(p4info)


def test_every_architecture_has_a_target_and_another_is_refused_with_those_there_are() -> None:
    for target in TARGETS.values():
        for architecture in target.architectures:
            assert architecture in target_of(Capabilities(architecture)).architectures
    with pytest.raises(ProgramFileError, match="'psa': expected one of v1model, tna, t2na"):
        target_of(Capabilities("psa"))


@pytest.mark.parametrize("name", PROCESS_TARGETS)
def test_the_command_of_a_target_names_its_ports_and_its_server(name: str, tmp_path: Path) -> None:
    setup = SwitchSetup(
        interfaces={1: "s1-eth1", 2: "s1-eth2"},
        p4runtime="unix:/run/s1.sock",
        device_id=7,
        cpu_port=510,
        status=tmp_path / "status",
        notifications=tmp_path / "notifications",
        pcaps=tmp_path,
    )
    command = PROCESS_TARGETS[name].command(setup, 3)
    assert {"1@s1-eth1", "2@s1-eth2", "unix:/run/s1.sock", "7", "510", str(tmp_path)} <= set(command)
    assert ("--ready-fd" in command) == PROCESS_TARGETS[name].announces
