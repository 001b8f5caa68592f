"""A P4 program that was compiled from other sources than those beside it runs, and whatever runs it says so."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from netsum import programs, simulation
from netsum.cli.app import app
from netsum_common.lane_counts import SOFTWARE_LANES

ROOT = Path(__file__).resolve().parents[2]
STALE = "netsum: p4/build was compiled from other sources than those in p4/: run `make p4`"
PRODUCT = ("netsum", "netsum_common", "host_agent", "controller", "sim", "topologies")


def clear_caches() -> None:
    """Let this process look, and say what it finds, as a new one does."""
    programs.fault_of_build.cache_clear()
    programs._warn.cache_clear()


@pytest.fixture
def p4(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The P4 folder of a checkout of its own, whose programs this process takes."""
    copy = tmp_path / "p4"
    shutil.copytree(ROOT / "p4", copy)
    monkeypatch.setattr(programs, "BUILD", copy / "build")
    clear_caches()
    return copy


@pytest.fixture
def changed(p4: Path) -> Path:
    """The same with saturation taken out of the sources, and no compiler."""
    lane = p4 / "v1model" / "lane.p4"
    lane.write_text(lane.read_text().replace("held |+| (int<32>)", "held + (int<32>)"))
    return p4


def netsum(*words: str) -> Result:
    return CliRunner().invoke(app, words, prog_name="netsum")


def test_the_programs_of_this_checkout_are_those_of_its_sources() -> None:
    clear_caches()
    assert programs.fault_of_build() == ""


def test_nothing_is_said_about_programs_of_their_sources(p4: Path, capfd: pytest.CaptureFixture[str]) -> None:
    lane = p4 / "v1model" / "lane.p4"
    lane.write_text(lane.read_text().replace(";\n", ";  // A comment is no other program.\n"))
    assert programs.compiled_program(64).json.parent == p4 / "build"
    assert capfd.readouterr().err == ""


def test_whoever_asks_for_a_program_of_other_sources_is_told_once(
    changed: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for lanes in (64, 256, 1024):
        assert programs.compiled_program(lanes).json.parent == changed / "build"
    (said,) = capfd.readouterr().err.splitlines()
    assert said.startswith(STALE)
    assert said.endswith("; until then the program of p4/build runs as it is")


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        ("build/stamp.json", None, "there is no {p4}/build/stamp.json: run `make p4`"),
        ("build/stamp.json", "<<<<<<< HEAD", "p4/build cannot be compared with p4/ (Expecting value"),
        ("build/stamp.json", "[]", "p4/build cannot be compared with p4/"),
        ("spec/protocol.toml", "half a li", "p4/build cannot be compared with p4/"),
        ("build/netsum_v1model_256.json", "{}", "a file in p4/build is not the one that was compiled"),
    ],
)
def test_a_build_that_cannot_be_compared_is_no_reason_to_end(
    p4: Path, capfd: pytest.CaptureFixture[str], file: str, content: str | None, said: str
) -> None:
    if content is None:
        (p4 / file).unlink()
    else:
        (p4 / file).write_text(content)
    programs.compiled_program(64)
    assert capfd.readouterr().err.startswith(f"netsum: {said.format(p4=p4)}")


def test_a_wheel_has_no_sources_to_compare_with(changed: Path, capfd: pytest.CaptureFixture[str]) -> None:
    for path in changed.iterdir():
        if path.name != "build":
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    programs.compiled_program(64)
    assert capfd.readouterr().err == ""


def test_doctor_names_the_stale_program(changed: Path) -> None:
    checks = json.loads(netsum("doctor", "--json").stdout)["checks"]
    (check,) = (each for each in checks if each["subject"] == "Compiled P4")
    assert not check["well"]
    assert not check["required"]
    assert "64 lanes" in check["found"]
    assert check["remedy"].startswith("p4/build was compiled from other sources than those in p4/")


def test_an_experiment_of_the_simulator_says_so(changed: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert set(simulation.programs()) == set(SOFTWARE_LANES)
    assert STALE in capfd.readouterr().err


def test_a_testbed_says_so_before_it_comes_up(
    changed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # Without `ip` the testbed cannot come up.
    done = netsum("testbed", "up", "star-2")
    assert done.exit_code == 1
    assert STALE in done.stderr


def test_a_controller_says_so(changed: Path, tmp_path: Path) -> None:
    network = tmp_path / "network.toml"
    network.write_text((ROOT / "examples" / "deploy" / "network.toml").read_text())
    done = netsum("controller", "serve", "--config", str(network), "--listen", "nonsense")
    assert done.exit_code == 2
    assert STALE in done.stderr


def test_a_program_of_the_checkout_that_is_named_by_its_file_is_compared_too(
    changed: Path, tmp_path: Path
) -> None:
    own = tmp_path / "own.json"
    shutil.copy(changed / "build" / "netsum_v1model_64.json", own)
    for program, told in ((changed / "build" / "netsum_v1model_64.json", True), (own, False)):
        clear_caches()
        done = netsum("switch", "serve", "--program", str(program), "--p4runtime", "nonsense")
        assert (STALE in done.stderr) == told


def test_all_of_netsum_takes_its_programs_from_one_place() -> None:
    named = re.compile(r"netsum_v1model_|[\"']p4[\"'] / |p4/build/")
    found = {
        str(path.relative_to(ROOT))
        for package in PRODUCT
        for path in (ROOT / package).rglob("*.py")
        if named.search(path.read_text(encoding="utf-8"))
    }
    assert found == {"netsum/programs.py"}


def test_a_service_that_is_started_for_a_training_says_so(changed: Path, tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from netsum import programs, local_service; "
        f"programs.BUILD = Path({str(changed / 'build')!r}); "
        "sys.exit(local_service.main(['--places', '1', '--lanes', '64', '--until-unused']))"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script], cwd=tmp_path, stderr=subprocess.PIPE, text=True
    ) as service:
        assert service.stderr is not None
        said = service.stderr.readline()
        service.terminate()
    assert said.startswith(STALE)


@pytest.mark.parametrize(
    ("most", "mtu", "lanes"),
    [
        (1024, 1500, 256),
        (1024, 2099, 256),
        (1024, 2100, 512),
        (1024, 4148, 1024),
        (512, 9000, 512),
        (64, 9000, 64),
        (1024, 1000, 64),
        (1024, 200, 64),  # Refused afterwards, as no program has packets as short.
    ],
)
def test_a_testbed_takes_the_most_lanes_that_its_mtu_has_room_for(most: int, mtu: int, lanes: int) -> None:
    assert programs.usual_lanes(most, mtu) == lanes
