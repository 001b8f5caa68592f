"""netsum.mpi under mpiexec: `mpi_program.py` compares every element there with MPI's."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.integration.framework_ranks import ROOT

pytest.importorskip("mpi4py", reason="needs mpi4py: pip install 'netsum[mpi]'")
# A wheel's mpiexec lies beside the interpreter, which need not be on PATH.
MPIEXEC = shutil.which("mpiexec", path=f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(MPIEXEC is None, reason="needs mpiexec: pip install mpich"),
]


def _run(ranks: int, *words: str) -> list[dict[str, Any]]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("NETSUM_")}
    program = [sys.executable, str(Path(__file__).with_name("mpi_program.py")), *words]
    done = subprocess.run(
        # Otherwise MPICH's mpiexec ends all ranks when one dies, before they can print their errors.
        [str(MPIEXEC), "-disable-auto-cleanup", "-n", str(ranks), *program],
        env=environment | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )
    assert done.stdout.count("digests") == ranks - ("leave" in words), done.stderr
    # mpiexec joins the ranks' lines as they come: their ends may come later.
    return [json.loads(line) for line in done.stdout.replace("}{", "}\n{").splitlines() if line]


def test_collectives_equal_mpis_and_exact_sums_the_same_bits_on_one_and_four_ranks() -> None:
    alone, three = _run(1), _run(4, "leave")
    assert len({each["digests"]["exact_sum"] for each in alone + three}) == 1
    assert alone[0]["digests"]["MPI"] != three[0]["digests"]["MPI"]
    assert three[0]["counts"]["Allreduce switch"] == 11
    assert three[0]["counts"]["Allreduce MPI"] == 7  # PROD, and all of uint32.
    assert ["the ranks do not agree on this collective" in each["swapped"] for each in three] == [True] * 3
    assert [each["left"].endswith("rank 3 left before this was done") for each in three] == [True] * 3
