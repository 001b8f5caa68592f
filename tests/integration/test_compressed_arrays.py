"""`Communicator.allreduce` with a compression: through real sockets and a switch that loses packets."""

from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", exc_type=ImportError)

import torch

from host_agent.communicator import Communicator
from host_agent.compression import Compression, Reducer, make_compressor, make_memory, reduce_in_process
from host_agent.errors import MisuseError, UnsupportedTypeError
from tests.integration.simulated.loopback import LoopbackSwitch, on_all

WORKERS = 3


def gradient(step: int, rank: int, size: int = 3000) -> Any:
    return np.random.default_rng(10 * step + rank).standard_normal(size, np.float32).reshape(30, -1)


@pytest.fixture(scope="module")
def communicators() -> Any:
    with LoopbackSwitch(workers=WORKERS, drop_ppm=10_000) as switch:
        made = [Communicator(admission, bind=address) for admission, address in switch.start_job()]
        yield made
        for each in made:
            each.close()


def in_memory(name: str, steps: int, **options: Any) -> list[Any]:
    reducers = [
        Reducer(make_compressor(name, **options), make_memory("residual"), rank, WORKERS)
        for rank in range(WORKERS)
    ]
    return [
        reduce_in_process(reducers, "w", [torch.from_numpy(gradient(step, rank)) for rank in range(WORKERS)])[
            0
        ].numpy()
        for step in range(steps)
    ]


@pytest.mark.parametrize(("name", "options"), [("top-k", {"fraction": 0.05}), ("block-float", {"bits": 4})])
def test_the_bits_are_those_computed_in_memory_and_the_wire_is_counted(
    communicators: list[Communicator], name: str, options: dict[str, Any]
) -> None:
    def worker(comm: Communicator) -> Any:
        compression = Compression(name, memory="residual", **options)
        means = [
            comm.allreduce(gradient(step, comm.worker_id), "mean", compression=compression, label="w")
            for step in range(3)
        ]
        return means, compression.statistics["w"]

    wanted = in_memory(name, 3, **options)
    for outcome in on_all(communicators, worker):
        assert not isinstance(outcome, Exception), outcome
        means, statistics = outcome
        assert all(np.array_equal(one, other) for one, other in zip(means, wanted, strict=True))
        assert (statistics.steps, statistics.bytes_before) == (3, 3 * 12_000)
        promised = statistics.bytes_payload + statistics.bytes_agreed
        assert promised < statistics.bytes_sent < 3 * 12_000
        assert statistics.bytes_received > statistics.bytes_payload


def test_sums_other_types_and_out(communicators: list[Communicator]) -> None:
    def worker(comm: Communicator) -> Any:
        out = np.empty((30, 100))
        part = gradient(0, comm.worker_id).astype(np.float64)
        got = comm.allreduce(part, out=out, compression=Compression("block-float", bits=16))
        return got is out, out

    exact = sum(gradient(0, rank).astype(np.float64) for rank in range(WORKERS))
    for is_out, out in on_all(communicators, worker):
        assert is_out
        np.testing.assert_allclose(out, exact, atol=2e-3)


def test_a_state_that_was_saved_goes_on_with_the_same_bits(communicators: list[Communicator]) -> None:
    def worker(comm: Communicator) -> Any:
        first = Compression("top-k", memory="residual", fraction=0.05)
        comm.allreduce(gradient(0, comm.worker_id), "mean", compression=first, label="w")
        first.set_options(fraction=0.1)
        second = Compression("top-k", memory="residual")
        second.load_state_dict(comm, first.state_dict())
        return [
            comm.allreduce(gradient(1, comm.worker_id), "mean", compression=each, label="w")
            for each in (first, second)
        ]

    for one, other in on_all(communicators, worker):
        assert np.array_equal(one, other)
        assert np.count_nonzero(one) > 300


def test_what_makes_no_sense_is_refused_before_anything_is_sent(communicators: list[Communicator]) -> None:
    comm = communicators[0]
    compression = Compression("top-k")
    with pytest.raises(
        UnsupportedTypeError, match="compression takes the sum and mean of float32, .*, not 'max'"
    ):
        comm.allreduce(gradient(0, 0), "max", compression=compression)
    with pytest.raises(UnsupportedTypeError, match="not 'sum' of int32"):
        comm.allreduce(np.ones(3, np.int32), compression=compression)
    with pytest.raises(MisuseError, match="cannot be combined with compression"):
        comm.allreduce(gradient(0, 0), bits=8, compression=compression)
    with pytest.raises(MisuseError, match="has no option 'bits'"):
        Compression("top-k", bits=4)
    with pytest.raises(MisuseError, match="needs an unbiased compressor"):
        Compression("top-k", memory="diana")


def test_a_label_keeps_to_one_shape(communicators: list[Communicator]) -> None:
    def worker(comm: Communicator) -> Any:
        compression = Compression("top-k", memory="residual")
        comm.allreduce(np.ones(8, np.float32), compression=compression, label="w")
        comm.allreduce(np.ones(9, np.float32), compression=compression, label="w")

    for outcome in on_all(communicators, worker):
        assert isinstance(outcome, MisuseError)
        assert "had the shape (8,) before, not (9,)" in str(outcome)
