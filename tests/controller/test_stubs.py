"""The committed stubs are those of the .proto files beside them, and import beside what else an environment holds."""

import importlib.metadata
import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool
from google.protobuf.internal import api_implementation

from host_agent.job_api import generate_stubs as job_stubs
from netsum_common.p4rt import p4runtime_pb2
from netsum_common.protoc import COMPILER
from tests import p4runtime_stubs

GENERATORS = {
    "jobs": (job_stubs, Path(job_stubs.__file__).parent, tuple(job_stubs.STUBS)),
    "P4Runtime": (p4runtime_stubs, p4runtime_stubs.FOLDER, tuple(p4runtime_stubs.stub_names())),
}
generators = pytest.mark.parametrize(
    ("generator", "folder", "names"), GENERATORS.values(), ids=GENERATORS.keys()
)


@generators
def test_stubs_carry_the_stamp_of_their_source(
    generator: ModuleType, folder: Path, names: tuple[str, ...]
) -> None:
    stale = [n for n in names if not (folder / n).read_text(encoding="utf-8").startswith(generator.stamp())]
    assert stale == [], f"run `python -m {generator.__name__}`"


@generators
def test_stubs_are_what_the_compiler_writes(
    generator: ModuleType, folder: Path, names: tuple[str, ...]
) -> None:
    if importlib.util.find_spec("grpc_tools") is None:
        pytest.skip(f"needs {COMPILER[0]}")
    if importlib.metadata.version("grpcio-tools") != COMPILER[0].partition("==")[2]:
        pytest.skip(f"another version than {COMPILER[0]}")
    made = generator.compile_stubs(Path(sys.executable))
    assert made.keys() == set(names)
    for name, text in made.items():
        assert (folder / name).read_text(encoding="utf-8") == text, f"run `python -m {generator.__name__}`"


@generators
def test_stubs_import_with_old_and_new_protobuf(
    generator: ModuleType, folder: Path, names: tuple[str, ...]
) -> None:
    # A newer compiler writes a check of the runtime's version, which 3.20 does not have.
    for name in names:
        assert "runtime_version" not in (folder / name).read_text(encoding="utf-8")


def test_p4runtime_stubs_do_not_need_those_of_other_packages() -> None:
    blocked = "import sys; sys.modules.update({'p4': None, 'google.rpc': None}); "
    script = blocked + "import controller.session, controller.p4info, sim.switch.serve"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_p4runtime_stubs_live_beside_another_version_of_the_same_messages() -> None:
    if api_implementation.Type() == "python":
        pytest.skip(
            "protobuf in pure Python keeps one registry of names for all pools; p4runtime-shell's are the same"
        )
    # As p4lang's package p4runtime on import, with other definitions: the default pool takes one of each only.
    other = descriptor_pb2.FileDescriptorProto(name="p4/v1/p4runtime.proto", package="p4.v1", syntax="proto3")
    other.message_type.add(name="WriteRequest").field.add(name="other", number=1, type=4, label=1)
    pool = descriptor_pool.Default()
    pool.AddSerializedFile(other.SerializeToString())
    theirs = pool.FindMessageTypeByName("p4.v1.WriteRequest")
    assert [field.name for field in theirs.fields] == ["other"]
    assert "updates" in p4runtime_pb2.WriteRequest.DESCRIPTOR.fields_by_name
