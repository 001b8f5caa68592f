"""p4c's v1model samples, with and without STF scripts, under random packets: the engine must do as BMv2 does.

A tenth of them by default; all with NETSUM_ALL_SAMPLES=1 (about 430 programs, several minutes).
"""

from __future__ import annotations

import os
import random
import shutil
from pathlib import Path

import pytest

from sim.switch import Packets, Switch, load_program
from tests.sim.switch.bmv2_switch import Bmv2, describe
from tests.sim.switch.p4c_samples import REFUSED, compile_sample, v1model_samples

pytestmark = [
    pytest.mark.bmv2,
    pytest.mark.p4c,
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("simple_switch") is None, reason="BMv2 is not installed"),
]

# Programs whose result is not defined: random numbers, indices outside stacks, on which BMv2 aborts, loops that do not
# end, and JSON that p4c gets wrong and BMv2 does not load.
UNDEFINED = REFUSED.keys() | {
    *("issue1517-bmv2", "issue2726-bmv2", "issue1607-bmv2", "issue3374", "forloop-bmv2"),
    *("runtime-index-bmv2", "runtime-index-2-bmv2", "extract_for_header_union"),
    *(f"control-hs-index-test{n}" for n in range(1, 7)),
}
PACKETS = 25
PORTS = range(8)


def _chosen() -> list[str]:
    names = [n for n in v1model_samples(with_script=False) if n not in UNDEFINED]
    return names if os.environ.get("NETSUM_ALL_SAMPLES") else names[::10]


@pytest.fixture(scope="session")
def compiled(pytestconfig: pytest.Config) -> Path:
    assert pytestconfig.cache is not None
    return pytestconfig.cache.mkdir("p4c")


def _frame(rng: random.Random) -> bytes:
    size = rng.choice([64, 90, 128, 200])
    frame = bytearray(rng.choice([bytes(size), rng.randbytes(size)]))
    if rng.random() < 0.6:
        frame[12:15] = b"\x08\x00\x45"
    if rng.random() < 0.3:
        frame[23] = rng.choice([6, 17])
    return bytes(frame)


@pytest.mark.parametrize("name", _chosen())
def test_random_packets(name: str, compiled: Path, tmp_path: Path) -> None:
    program = compile_sample(name, compiled)
    if program is None:
        pytest.skip("p4c does not compile it for BMv2")
    switch, rng = Switch(load_program(program)), random.Random(name)
    with Bmv2(program, PORTS, tmp_path) as bmv2:
        for number in range(PACKETS):
            frame = _frame(rng)
            ours = [o for o in switch.inject(Packets.of([(0, frame)]), number * 1000) if o[0] in PORTS]
            assert describe(ours) == describe(bmv2.send(frame, len(ours))), frame.hex()
