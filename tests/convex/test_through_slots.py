"""Compressed rounds through the slots of a simulated switch: same bits as in memory, bytes as promised, claims that hold."""

import struct
from pathlib import Path

import pytest

pytest.importorskip("torch", exc_type=ImportError)

import torch

pytest.importorskip("sklearn", reason="needs scikit-learn")

from host_agent.compression import Reducer, make_compressor, make_memory, reduce_in_process
from sim.experiments.captures import write_capture
from tests.convex.cases import ACCURACY, STALL, cases_of, run_case
from tests.convex.star import SimulatedStar

HEADERS = 66
"""Ethernet, IPv4, UDP, and the protocol's own: bytes of a packet without lanes."""
WORKERS = 3


def tensors(elements: int, step: int) -> list["torch.Tensor"]:
    return [
        torch.randn(elements, generator=torch.Generator().manual_seed(10 * step + rank))
        for rank in range(WORKERS)
    ]


def reducers(name: str, memory: str, **options: object) -> list[Reducer]:
    return [
        Reducer(make_compressor(name, **options), make_memory(memory), rank, WORKERS)
        for rank in range(WORKERS)
    ]


@pytest.mark.parametrize(
    ("name", "memory"),
    [("terngrad", "diana"), ("block-float", "residual"), ("top-k", "residual"), ("qsgd", "none")],
)
def test_a_switch_that_loses_packets_gives_the_same_bits_as_memory(name: str, memory: str) -> None:
    star = SimulatedStar(WORKERS, loss=0.2, lanes=64)
    through, beside = reducers(name, memory), reducers(name, memory)
    for step in range(3):
        results = reduce_in_process(through, "x", tensors(500, step), star)
        expected = reduce_in_process(beside, "x", tensors(500, step))
        assert all(torch.equal(each, expected[0]) for each in results)
    assert star.lost > 0


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("block-float", {"bits": 8}),
        ("terngrad", {}),
        ("random-k", {"fraction": 0.25}),
        ("top-k", {"fraction": 0.1}),
        ("qsgd", {}),
    ],
)
def test_a_capture_holds_the_bytes_that_the_method_promises(
    name: str, options: dict[str, object], tmp_path: Path
) -> None:
    star = SimulatedStar(WORKERS, lanes=64)
    uplink = star.links[0][0]
    star.network.tap(uplink, frame_bytes=128)
    group = reducers(name, "none", **options)
    reduce_in_process(group, "x", tensors(40_000, 0), star)
    star.network.trace.flush()
    write_capture(star.network, uplink, tmp_path / "h1.pcap")
    lengths = frame_lengths(tmp_path / "h1.pcap")
    total = group[0].total()
    promised = total.bytes_payload + total.bytes_agreed
    # Packets are distinguished by length: packets without lanes are headers alone.
    carried = sum(max(0, length - HEADERS) for length in lengths)
    assert carried == pytest.approx(promised, rel=0.05)
    assert total.bytes_before == 160_000
    assert sum(lengths) < 1.4 * promised + 160_000 * HEADERS / 256  # other workers' payloads need answers


def frame_lengths(path: Path) -> list[int]:
    data = path.read_bytes()
    lengths, at = [], 24
    while at < len(data):
        _, _, kept, length = struct.unpack_from("<IIII", data, at)
        lengths.append(length)
        at += 16 + kept
    return lengths


def test_diana_converges_and_methods_without_a_memory_stall_through_a_switch_that_loses_packets() -> None:
    ridge = {case.method: case for case in cases_of(quick=True) if case.problem == "ridge"}
    converged = run_case(ridge["DIANA"])  # of the two the one with 4 bits
    assert converged.distance <= ACCURACY
    assert converged.bound is not None
    assert converged.steps <= converged.bound
    # At a linear rate the second half of the digits takes as long as the first.
    assert converged.half is not None
    assert 0.35 < converged.half / converged.steps < 0.65
    assert converged.lost > 0
    for method in ("TernGrad", "QSGD"):
        stalled = run_case(ridge[method])
        assert stalled.holds
        assert stalled.distance > STALL
