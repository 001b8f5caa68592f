"""`netsum.torch` as the first import of a script, before PyTorch."""

import subprocess
import sys

import pytest

pytest.importorskip("torch", reason="needs PyTorch: pip install 'netsum[torch]'")

pytestmark = pytest.mark.torch


@pytest.mark.parametrize("first", ["netsum.torch", "torch", "torch.distributed"])
def test_the_backend_is_known_whatever_is_imported_first(first: str) -> None:
    script = f"import {first}; from netsum.torch import Options; import torch.distributed as dist; print(dist.Backend.NETSUM)"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stdout.strip()) == (0, "netsum"), done.stderr
