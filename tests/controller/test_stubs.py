"""The committed stubs are those of the .proto beside them."""

import importlib.metadata
import importlib.util
import sys
from pathlib import Path

import pytest

from host_agent.wire.generate_stubs import COMPILER, SOURCE, STUBS, compile_stubs, stamp

REMEDY = "run `python -m host_agent.wire.generate_stubs`"


@pytest.mark.parametrize("name", STUBS)
def test_stubs_carry_the_stamp_of_their_source(name: str) -> None:
    assert SOURCE.with_name(name).read_text(encoding="utf-8").startswith(stamp()), REMEDY


def test_stubs_are_what_the_compiler_writes() -> None:
    if importlib.util.find_spec("grpc_tools") is None:
        pytest.skip(f"needs {COMPILER[0]}")
    if importlib.metadata.version("grpcio-tools") != COMPILER[0].partition("==")[2]:
        pytest.skip(f"another version than {COMPILER[0]}")
    for name, text in compile_stubs(Path(sys.executable)).items():
        assert SOURCE.with_name(name).read_text(encoding="utf-8") == text, REMEDY


def test_stubs_import_with_old_and_new_protobuf() -> None:
    # A newer compiler writes a check of the runtime's version, which 3.20 does not have.
    for name in STUBS:
        assert "runtime_version" not in SOURCE.with_name(name).read_text(encoding="utf-8")
