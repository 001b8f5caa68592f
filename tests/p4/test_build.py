"""The committed build is that of the committed sources."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from host_agent.wire.constants import POOL_SLOTS
from netsum_common.lent_program import MOST_SLOTS
from netsum_common.targets import Capabilities

ROOT = Path(__file__).resolve().parents[2]
P4INFOS = [
    *sorted((ROOT / "p4" / "build").glob("*.p4info.txtpb")),
    *sorted((ROOT / "tests" / "dataplane" / "tna_logic").glob("*.p4info.txtpb")),
]
PROGRAMS = sorted((ROOT / "p4" / "build").glob("netsum_*.json"))


def script(
    folder: Path, name: str, *arguments: str, path: str | None = None
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(folder / "p4" / name), *arguments],
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
        env=None if path is None else {"PATH": path},
    )


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the files that the scripts read and write."""
    shutil.copytree(ROOT / "p4", tmp_path / "p4")
    for file in ("host_agent/wire/constants.py", "netsum_common/lane_counts.py", "netsum/packets/netsum.lua"):
        (tmp_path / file).parent.mkdir(parents=True)
        shutil.copy(ROOT / file, tmp_path / file)
    return tmp_path


def test_generated_files_are_those_of_the_spec() -> None:
    done = script(ROOT, "spec/generate.py", "--check")
    assert done.returncode == 0, done.stdout


def test_build_is_that_of_the_sources() -> None:
    done = script(ROOT, "build.py", "--check")
    assert done.returncode == 0, done.stderr


@pytest.mark.p4c
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_compiling_again_gives_the_same_bytes(copy: Path) -> None:
    if shutil.which("p4c-bm2-ss") is None:
        pytest.skip("p4c-bm2-ss is not on PATH")
    done = script(copy, "build.py")
    assert done.returncode == 0, done.stderr
    kept, made = (json.loads((folder / "p4/build/stamp.json").read_text()) for folder in (ROOT, copy))
    if made["compiler"] != kept["compiler"]:
        pytest.skip(f"p4/build was made with p4c {kept['compiler']}; this is {made['compiler']}")
    assert made == kept, "run `make p4`"


@pytest.mark.parametrize("p4info", P4INFOS, ids=[path.name for path in P4INFOS])
def test_capabilities_are_those_that_the_p4info_shows(p4info: Path, tmp_path: Path) -> None:
    shutil.copy(p4info, tmp_path)
    assert script(ROOT, "build.py", "--describe", str(tmp_path / p4info.name)).returncode == 0
    (written,) = tmp_path.glob("*.toml")
    assert written.read_bytes() == (p4info.parent / written.name).read_bytes()


def test_another_programs_capabilities_are_not_made_up(tmp_path: Path) -> None:
    done = script(ROOT, "build.py", "--describe", str(tmp_path / "none.p4info.txtpb"))
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert "cannot read the P4Info" in done.stderr
    (tmp_path / "other.p4info.txtpb").write_text('pkg_info {\n  arch: "v1model"\n}\n')
    done = script(ROOT, "build.py", "--describe", str(tmp_path / "other.p4info.txtpb"))
    assert done.returncode == 1
    assert "other.p4info.txtpb is not an aggregation program's" in done.stderr


def test_changed_source_makes_the_build_stale(copy: Path) -> None:
    with (copy / "p4" / "shared" / "forward.p4").open("a") as source:
        source.write("// changed\n")
    done = script(copy, "build.py", "--check")
    assert done.returncode == 1
    assert "make p4" in done.stderr


def test_changed_build_is_noticed(copy: Path) -> None:
    with (copy / "p4" / "build" / "netsum_v1model_64.json").open("a") as program:
        program.write(" ")
    done = script(copy, "build.py", "--check")
    assert done.returncode == 1
    assert "make p4" in done.stderr


def test_changed_spec_makes_the_generated_files_stale(copy: Path) -> None:
    spec = copy / "p4" / "spec" / "protocol.toml"
    spec.write_text(spec.read_text().replace("udp_port = 28275", "udp_port = 28276"))
    assert script(copy, "spec/generate.py", "--check").returncode == 1
    assert "p4/spec/protocol.toml was changed" in script(copy, "build.py", "--check").stderr
    assert script(copy, "spec/generate.py").returncode == 0
    assert script(copy, "spec/generate.py", "--check").returncode == 0
    assert "compiled from other sources" in script(copy, "build.py", "--check").stderr
    assert "UDP_PORT: Final = 28276" in (copy / "host_agent" / "wire" / "constants.py").read_text()


@pytest.mark.parametrize(("target", "compiler"), [("p4", "p4/build.py"), ("p4-tofino", "p4/tofino.py")])
def test_make_generates_the_constants_before_it_compiles(target: str, compiler: str) -> None:
    if shutil.which("make") is None:
        pytest.skip("needs make")
    plan = subprocess.check_output(["make", "-n", target], cwd=ROOT, text=True, timeout=60)
    assert -1 < plan.find("p4/spec/generate.py") < plan.find(compiler)


def test_without_the_compiler_the_error_says_what_to_do(copy: Path, tmp_path: Path) -> None:
    done = script(copy, "build.py", path=str(tmp_path))
    assert done.returncode == 1
    assert "install p4c" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("program", PROGRAMS, ids=[path.stem for path in PROGRAMS])
def test_build_names_no_folder_of_the_builder(program: Path) -> None:
    text = program.read_text()
    assert "source_info" not in text
    assert json.loads(text)["program"] == "p4/v1model/netsum.p4"


def test_a_job_and_a_program_without_a_description_have_the_slots_of_a_software_switch() -> None:
    """`netsum_common` may not import the constants that are generated for the host agent."""
    assert POOL_SLOTS == MOST_SLOTS == Capabilities().slots
