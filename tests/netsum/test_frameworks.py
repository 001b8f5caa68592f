"""Integrations of frameworks that are not installed, and ranks whose environment is incomplete."""

import importlib
import sys

import pytest

from host_agent.errors import MisuseError
from host_agent.joining import JoinError
from host_agent.meeting import VARIABLES, meet
from tests.free_ports import free_port


@pytest.mark.parametrize(
    ("module", "package"), [("jax", "jax"), ("mpi", "mpi4py"), ("horovod", "keras"), ("ray", "ray")]
)
def test_a_missing_framework_is_named_with_its_pip_install(
    module: str, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, f"netsum.{module}", raising=False)
    with pytest.raises(ModuleNotFoundError, match=f"netsum.{module} needs .*pip install .*{package}"):
        importlib.import_module(f"netsum.{module}")


def test_a_process_without_the_variables_is_alone_and_one_with_some_of_them_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for each in VARIABLES:
        monkeypatch.delenv(each, raising=False)
    share, rank, size = meet(1.0)
    assert (share("text"), rank, size) == ("text", 0, 1)
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(MisuseError, match="MASTER_ADDR, MASTER_PORT: expected RANK below WORLD_SIZE"):
        meet(1.0)
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", str(free_port()))
    with pytest.raises(JoinError, match="rank 0 did not come: nothing answered at 127.0.0.1:"):
        meet(0.3)[0]("")
