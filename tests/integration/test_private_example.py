"""The example of federated averaging: a model that is the same, bit for bit, with and without masks."""

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs PyTorch: pip install 'netsum[torch]'")
pytest.importorskip("cryptography", reason="needs cryptography: pip install 'netsum[private]'")

EXAMPLE = Path(__file__).parents[2] / "examples" / "private_fedavg.py"
DEADLINE_S = 500


@pytest.mark.torch
def test_masks_do_not_change_a_bit_of_the_model() -> None:
    ran = subprocess.run(
        [sys.executable, EXAMPLE], capture_output=True, text=True, timeout=DEADLINE_S, check=False
    )
    assert ran.returncode == 0, ran.stderr
    plain, masked = (line.split() for line in ran.stdout.splitlines())
    assert (plain[0], masked[0]) == ("plain", "masked")
    assert plain[1:] == masked[1:]
