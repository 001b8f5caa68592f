"""Object code between processes: found again, never trusted blindly, safe to write at once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from sim.switch import Packets, Switch, load_program
from sim.switch.machine import default_cache_dir
from tests.sim.switch.scenarios import PROGRAMS

PROGRAM = PROGRAMS / "traffic.json"
PACKET = Packets.of([(0, bytes([0, 3, 0, 0, 0, 0]))])


def _files(directory: Path) -> list[Path]:
    return sorted((directory / "switch").iterdir())


def test_second_switch_comes_from_the_cache(tmp_path: Path) -> None:
    first, second = (Switch(load_program(PROGRAM), tmp_path) for _ in range(2))
    assert not first.cached
    assert second.cached
    assert list(first.inject(PACKET, 0)) == list(second.inject(PACKET, 0))


@pytest.mark.parametrize("damage", ["empty", "cut", "flipped", "other"])
def test_damaged_file_is_replaced(tmp_path: Path, damage: str) -> None:
    Switch(load_program(PROGRAM), tmp_path)
    (path,) = _files(tmp_path)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    damaged = {"empty": b"", "cut": bytes(content[:-9]), "flipped": bytes(content), "other": b"\x7fELF"}
    path.write_bytes(damaged[damage])
    assert not Switch(load_program(PROGRAM), tmp_path).cached
    assert Switch(load_program(PROGRAM), tmp_path).cached


def test_cache_that_cannot_be_written_is_done_without(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    assert len(Switch(load_program(PROGRAM), blocked).inject(PACKET, 0)) == 1


def test_many_writers_at_once(tmp_path: Path) -> None:
    code = "import sys; from sim.switch import Switch, load_program; Switch(load_program(sys.argv[1]), sys.argv[2])"
    command = [sys.executable, "-c", code, str(PROGRAM), str(tmp_path)]
    running = [subprocess.Popen(command) for _ in range(4)]
    assert [process.wait(200) for process in running] == [0] * 4
    assert len(_files(tmp_path)) == 1
    assert Switch(load_program(PROGRAM), tmp_path).cached


def test_directory_can_be_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("NETSUM_CACHE_DIR", str(tmp_path))
    assert default_cache_dir() == tmp_path
    Switch(load_program(PROGRAM))
    assert len(_files(tmp_path)) == 1
