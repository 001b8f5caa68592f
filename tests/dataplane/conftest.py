"""Every test here runs on every data plane there is; `--target bmv2-64` (may be given again) picks one.

The ASIC models of Tofino are slow: without `--target` they, and 512 lanes, run in `SMOKE` only, unless NETSUM_LONG_TESTS is set.
"""

import itertools
import os
import re
import time
from collections.abc import Iterator

import pytest

from netsum_common import targets
from netsum_common.lane_counts import LINK_LANES, SOFTWARE_LANES
from tests.dataplane.dataplane import asic_model, bmv2, xdp
from tests.dataplane.dataplane.embedded import EmbeddedTarget
from tests.dataplane.dataplane.jobs import SWITCH_IP, SWITCH_MAC, Job, MakeJob
from tests.dataplane.dataplane.recirculating import RecirculatingTarget
from tests.dataplane.dataplane.target import Entry, Target
from tests.dataplane.tna_logic import translate

ENGINES = {
    "embedded": (SOFTWARE_LANES, []),
    "embedded-growth-512": ((256,), []),  # packets grow by 512 bytes at most, as in BMv2
    "xdp": ((*LINK_LANES, 512), [pytest.mark.root]),  # the kernel, by its test runs
    "bmv2": (LINK_LANES, [pytest.mark.bmv2, pytest.mark.root]),
    "tna-logic": ((translate.LANES,), []),  # the embedded engine with the decisions of Tofino's program in it
    "tna-passes": ((translate.LANES * translate.PASSES["tna_passes"],), []),  # in more passes than one
    "tna-tree": ((translate.LANES,), []),  # for a switch in a tree
    "tofino-model": ((8, 32, 64, 256), [pytest.mark.slow]),
    "tofino-model-tree": ((16,), [pytest.mark.slow]),
    "tofino2-model": ((64, 256), [pytest.mark.slow]),
    "tofino2-model-tree": ((32,), [pytest.mark.slow]),
}
ASIC_MODEL = re.compile(r"tofino2?-model")
SMOKE_ONLY = re.compile(rf"{ASIC_MODEL.pattern}|(embedded|xdp)-512$")
"""Switches that are slow, or whose program differs in the number of lanes alone."""
SMOKE = ("test_ping", "test_slot_reduction")
TARGETS = {
    f"{engine}-{lanes}": pytest.param((engine, lanes), id=f"{engine}-{lanes}", marks=marks)
    for engine, (lane_counts, marks) in ENGINES.items()
    for lanes in lane_counts
}

epochs = itertools.count(int(time.time()))
tokens = itertools.count(0x80000001, 0x01010101)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--target", action="append", choices=list(TARGETS), help="test this data plane only; may be repeated"
    )


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "target" in metafunc.fixturenames:
        everywhere = "NETSUM_LONG_TESTS" in os.environ or metafunc.module.__name__.rpartition(".")[2] in SMOKE
        usual = [name for name in TARGETS if everywhere or not SMOKE_ONLY.match(name)]
        wanted = metafunc.config.getoption("--target") or usual
        metafunc.parametrize("target", [TARGETS[name] for name in wanted], indirect=True, scope="session")


@pytest.fixture(scope="session")
def target(request: pytest.FixtureRequest) -> Iterator[Target]:
    """A switch with its own address."""
    engine, lanes = request.param
    switch: Target
    if engine == "embedded":
        switch = EmbeddedTarget(lanes)
    elif engine == "embedded-growth-512":
        switch = EmbeddedTarget(lanes)
        switch.set_default("packet_growth", "limit", {"bytes": targets.TARGETS["bmv2"].growth_bytes})
        switch.growth_bytes = targets.TARGETS["bmv2"].growth_bytes
    elif engine == "xdp":
        reason = xdp.why_not()
        if reason is not None:
            pytest.skip(reason)
        switch = xdp.XdpTarget(lanes)
    elif engine == "tna-logic":
        switch = EmbeddedTarget(lanes, translate.files("tna_logic"))
    elif engine == "tna-tree":
        switch = EmbeddedTarget(lanes, translate.files("tna_tree"))
    elif engine == "tna-passes":
        switch = RecirculatingTarget(lanes, translate.files("tna_passes"), translate.RECIRCULATION_PORT)
    elif ASIC_MODEL.match(engine):
        chip = asic_model.TOFINO2 if engine.startswith("tofino2") else asic_model.TOFINO
        tree = engine.endswith("tree")
        reason = asic_model.why_not(lanes, tree, chip)
        if reason is not None:
            pytest.skip(reason)
        switch = asic_model.AsicModelTarget.compiled(lanes, tree, chip)
    else:
        reason = bmv2.why_not()
        if reason is not None:
            pytest.skip(reason)
        switch = bmv2.Bmv2Target(lanes)
    try:
        switch.insert([Entry("switch_address", {"address": SWITCH_IP}, "own_address", {"mac": SWITCH_MAC})])
        yield switch
    finally:
        switch.close()


@pytest.fixture
def make_job(target: Target) -> Iterator[MakeJob]:
    """Start jobs, on slots of their own, that end with the test; what earlier tests left is of old epochs."""
    jobs: list[Job] = []
    free = 0

    def make(workers: int = 2, slots: int = 4, kind: type[Job] = Job, **fields: int) -> Job:
        nonlocal free
        given = {
            "job_id": len(jobs) + 1,
            "epoch": next(epochs),
            "token": next(tokens) % 2**32,
            "slot_base": free,
        } | fields
        job = kind(target, workers=workers, slot_count=slots, **given)
        free = max(free, job.slot_base + slots)
        job.start()
        jobs.append(job)
        return job

    yield make
    for job in jobs:
        job.end()
