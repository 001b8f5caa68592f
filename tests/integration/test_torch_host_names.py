"""Ranks on hosts whose own name resolves to a loopback address, as Debian's installer leaves it."""

import shlex
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs PyTorch: pip install 'netsum[torch]'")

from topologies.mininet_testbed import missing_for_mininet

lacking = missing_for_mininet()
pytestmark = [
    pytest.mark.root,
    pytest.mark.torch,
    pytest.mark.skipif(lacking is not None, reason=str(lacking)),
]
TESTBED = [sys.executable, "-P", "-c", "from netsum.cli import main; main()", "testbed"]
DEADLINE_S = 300.0
TRAINER = """
import torch, torch.distributed as dist
from datetime import timedelta
dist.init_process_group("netsum", timeout=timedelta(seconds=120))
product, total = (torch.full((2,), 2.0 + dist.get_rank()) for _ in range(2))
dist.all_reduce(product, dist.ReduceOp.PRODUCT)  # By Gloo.
dist.all_reduce(total)
print(product.tolist(), total.tolist())
dist.destroy_process_group()
"""


@pytest.fixture
def testbed(tmp_path: Path) -> Iterator[str]:
    name = f"names-{uuid.uuid4().hex[:8]}"
    subprocess.run(
        [*TESTBED, "up", "star-2", "--testbed", name], cwd=tmp_path, check=True, timeout=DEADLINE_S
    )
    yield name
    subprocess.run([*TESTBED, "down", "--testbed", name], cwd=tmp_path, check=True, timeout=DEADLINE_S)


def test_ranks_whose_host_names_resolve_to_127_0_1_1_reach_each_other(testbed: str, tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text("127.0.0.1 localhost\n127.0.1.1 trainer\n")
    (tmp_path / "train.py").write_text(TRAINER)
    ranks = []
    for rank in range(2):
        settings = f"RANK={rank} WORLD_SIZE=2 MASTER_ADDR=10.0.0.1 MASTER_PORT=29500 NETSUM_HOST_LEAF=0"
        commands = [
            "hostname trainer",
            f"mount --bind {tmp_path}/hosts /etc/hosts",
            f"exec env -u GLOO_SOCKET_IFNAME {settings} {shlex.quote(sys.executable)} {tmp_path}/train.py",
        ]
        command = ["unshare", "--mount", "--uts", "sh", "-ec", "; ".join(commands)]
        ranks.append(
            subprocess.Popen(
                [*TESTBED, "exec", "--testbed", testbed, f"h{rank + 1}", *command],
                cwd=tmp_path,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
    try:
        for one in ranks:
            out, errors = one.communicate(timeout=DEADLINE_S)
            assert out == "[6.0, 6.0] [5.0, 5.0]\n", errors
    finally:
        for one in ranks:
            one.kill()
