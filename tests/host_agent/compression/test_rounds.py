"""Rounds of several tensors: they are under way together, and come out as one after the other."""

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch", exc_type=ImportError)

import torch

from host_agent.compression import Reducer, make_compressor, make_memory
from host_agent.compression.exchange import Reduction, combined, reduce_over, run
from host_agent.compression.reducer import CompressedRound


class Alone:
    """The exchange of a group of one worker: it records begins and waits, and counts bytes."""

    rank, workers = 0, 1

    def __init__(self) -> None:
        self.log: list[str] = []
        self.bytes = 0

    def begin(self, request: CompressedRound) -> Callable[[], Any]:
        self.log.append("begin")
        self.bytes += 100 + sum(each.nbytes for each in request.tensors)

        def finish() -> Any:
            self.log.append("end")
            return combined([request])

        return finish

    def wire_bytes(self) -> tuple[int, int]:
        return self.bytes, 2 * self.bytes


def reductions(name: str) -> list[Reduction]:
    reducer = Reducer(make_compressor(name), make_memory("residual"))
    run(reducer.comparison(torch.device("cpu")), Alone())
    draw = torch.Generator().manual_seed(5)
    return [
        Reduction(reducer, f"layer {size}", torch.randn(size, generator=draw)) for size in (100, 3000, 0, 1)
    ]


@pytest.mark.parametrize(("name", "rounds"), [("top-k", 1), ("thc", 2), ("agreed-top-k", 2)])
def test_rounds_of_all_tensors_are_under_way_together_with_the_same_bits(name: str, rounds: int) -> None:
    exchange, one_by_one = Alone(), reductions(name)
    together = reduce_over(exchange, reductions(name))
    # Three tensors have elements; the next rounds begin when all results of these are there.
    assert exchange.log == (["begin"] * 3 + ["end"] * 3) * rounds
    alone = [run(each.reducer.rounds(each.key, each.gradient), Alone()) for each in one_by_one]
    assert all(torch.equal(a, b) for a, b in zip(together, alone, strict=True))


def test_bytes_on_the_wire_are_divided_by_payload_and_add_up() -> None:
    exchange, tensors = Alone(), reductions("thc")
    reduce_over(exchange, tensors)
    statistics = tensors[0].reducer.statistics
    total = tensors[0].reducer.total()
    assert (total.bytes_sent, total.bytes_received) == exchange.wire_bytes()
    large, small = statistics["layer 3000"], statistics["layer 100"]
    share = large.bytes_payload + large.bytes_agreed
    whole = total.bytes_payload + total.bytes_agreed
    assert large.bytes_sent == pytest.approx(exchange.bytes * share / whole, abs=1)
    assert 0 < small.bytes_sent < large.bytes_sent
