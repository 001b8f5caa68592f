"""The wheel in environments of its own: each extra suffices for what it is for, and what is missing is named.

Minutes of pip: `.ci/run` sets NETSUM_INSTALL_TESTS=1, `make test` does not.
"""

import os
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

from netsum_common.lane_counts import SOFTWARE_LANES

ROOT = Path(__file__).resolve().parents[2]
UNTRACKED = {"build", "runs", "netsum.egg-info"}
PIP_TIMEOUT_S = 900
RUN_TIMEOUT_S = 400

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1500),
    pytest.mark.skipif(
        "NETSUM_INSTALL_TESTS" not in os.environ,
        reason="installs into new environments; NETSUM_INSTALL_TESTS=1 runs it",
    ),
]

ADD = """
from concurrent.futures import ThreadPoolExecutor
import numpy as np
from host_agent.joining import join, start_service

def work(rank):
    with join(controller, job="install", rank=rank, world_size=2) as membership, membership.communicator(timeout_s=60.0) as comm:
        return comm.allreduce(np.full(1000, 1.5 + rank, np.float32))

controller = start_service(places=2)
with ThreadPoolExecutor(2) as pool:
    sums = list(pool.map(work, range(2)))
print(*{float(value) for each in sums for value in each})
"""

TRAIN = """
import torch, torch.distributed as dist
dist.init_process_group("netsum")
values = torch.full((1000,), 1.5 + dist.get_rank())
dist.all_reduce(values)
dist.destroy_process_group()
assert set(values.tolist()) == {4.0}
print("added")
"""

PROTOBUF = "import google.protobuf; print(google.protobuf.__version__.split('.')[0])"


SDIST = "from setuptools.build_meta import build_sdist; build_sdist('..')"


def _copy_of_the_sources(folder: Path) -> Path:
    """A copy, as setuptools builds inside the folder it is given."""

    def left_out(parent: str, names: list[str]) -> set[str]:
        return {
            name for name in names if Path(parent) == ROOT and (name.startswith(".") or name in UNTRACKED)
        }

    return Path(shutil.copytree(ROOT, folder / "source", ignore=left_out))


def _wheel_of(source: Path, folder: Path) -> Path:
    """The wheel that pip builds from `source`, with the setuptools that pip chooses."""
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder)]
    subprocess.run([*command, str(source)], check=True, timeout=PIP_TIMEOUT_S)
    (built,) = folder.glob("netsum-*.whl")
    return built


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    return _wheel_of(_copy_of_the_sources(folder), folder)


class Installed:
    """An environment with the wheel and some extras, and no checkout on its path."""

    def __init__(self, folder: Path, wheel: Path, extras: str, *more: str) -> None:
        venv.create(folder / "env", with_pip=True)
        self.folder = folder
        self.bin = folder / "env" / "bin"
        wanted = f"netsum{extras} @ {wheel.as_uri()}"
        self.run("pip", "install", "--quiet", wanted, *more, timeout_s=PIP_TIMEOUT_S)

    def run(self, program: str, *arguments: str, timeout_s: float = RUN_TIMEOUT_S, status: int = 0) -> str:
        """Output of a command, standard error included."""
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith(("NETSUM_", "PYTHON"))
        }
        done = subprocess.run(
            [self.bin / program, *arguments],
            cwd=self.folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        assert done.returncode == status, done.stdout
        return done.stdout


def contents(wheel: Path) -> dict[str, int]:
    with zipfile.ZipFile(wheel) as archive:
        return {each.filename: each.CRC for each in archive.infolist()}


def test_the_wheel_holds_its_licences_and_installs_without_an_index(wheel: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "env", with_pip=True)
    pip = [
        str(tmp_path / "env" / "bin" / "python"),
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-index",
        "--no-deps",
    ]
    subprocess.run([*pip, str(wheel)], check=True, timeout=PIP_TIMEOUT_S)
    (licences,) = (tmp_path / "env").glob("lib/python*/site-packages/netsum-*.dist-info/licenses")
    assert {each.name for each in licences.iterdir()} == {"LICENSE", "NOTICE"}
    assert len(list((tmp_path / "env" / "share" / "netsum").glob("netsum_v1model_*.json"))) == len(
        SOFTWARE_LANES
    )
    assert (tmp_path / "env" / "share" / "man" / "man1" / "netsum-job.1").is_file()


def test_the_source_distribution_has_all_sources(wheel: Path, tmp_path: Path) -> None:
    source = _copy_of_the_sources(tmp_path)
    subprocess.run([sys.executable, "-c", SDIST], cwd=source, check=True, timeout=PIP_TIMEOUT_S)
    (built,) = tmp_path.glob("netsum-*.tar.gz")
    with tarfile.open(built) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    shutil.unpack_archive(built, tmp_path)
    # The unpacked sources build the same wheel and the same source distribution; the list in netsum.egg-info is setuptools' own.
    (again,) = tmp_path.glob("netsum-*/")
    subprocess.run([sys.executable, "-c", SDIST], cwd=again, check=True, timeout=PIP_TIMEOUT_S)
    with tarfile.open(built) as archive:
        assert {name.partition("/")[2] for name in archive.getnames()} == names
    assert contents(_wheel_of(again, tmp_path)) == contents(wheel)
    assert {
        *("Makefile", "ARCHITECTURE.md", "CONTRIBUTING.md", "docs/cli.md", "netsum/bench/allreduce.py"),
        *("p4/v1model/netsum.p4", "p4/spec/protocol.toml", "p4/build.py", "tests/netsum/test_install.py"),
        *("examples/numpy_allreduce.py", "tests/sim/explore/programs/switchml.p4"),
    } <= names


def test_without_extras_a_worker_works_and_names_what_a_switch_needs(wheel: Path, tmp_path: Path) -> None:
    installed = Installed(tmp_path, wheel, "")
    installed.run("python", "-c", "import host_agent.joining, host_agent.communicator")
    said = installed.run("python", "-c", ADD, status=1)
    assert (
        "without the Python packages prometheus-client, tornado: pip install prometheus-client tornado"
        in said
    )
    said = installed.run("netsum", "--help", status=1)
    assert "the command needs the Python package" in said
    assert "pip install" in said


@pytest.mark.parametrize("protobuf", ["protobuf", "protobuf>=3.20,<3.21"], ids=["current", "3.20"])
def test_controller_and_simulator_start_a_switch(wheel: Path, tmp_path: Path, protobuf: str) -> None:
    installed = Installed(tmp_path, wheel, "[controller,sim]", protobuf)
    assert (installed.run("python", "-c", PROTOBUF).strip() == "3") == (protobuf != "protobuf")
    assert installed.run("python", "-c", ADD).splitlines()[-1] == "4.0"


def test_the_command_names_the_package_of_each_extra(wheel: Path, tmp_path: Path) -> None:
    installed = Installed(tmp_path, wheel, "[cli]")
    assert "allreduce" in installed.run("netsum", "--help")
    said = installed.run("netsum", "run", "digits", status=1)
    assert "this needs the Python package" in said
    assert "pip install" in said
    assert "Traceback" not in said


def test_one_extra_suffices_for_a_trainer(wheel: Path, tmp_path: Path) -> None:
    installed = Installed(tmp_path, wheel, "[torch]", "torch==2.13.0")
    (tmp_path / "train.py").write_text(TRAIN)
    launched = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "train.py"]
    assert installed.run("python", *launched).count("added") == 2
    packages = installed.run("pip", "list")
    assert "p4runtime-shell" not in packages
