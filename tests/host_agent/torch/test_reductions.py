import itertools

import pytest

pytest.importorskip("torch", reason="needs PyTorch: pip install 'netsum[torch]'")

import torch
import torch.distributed as dist

from host_agent.errors import SumOverflowError, UnsupportedTypeError
from host_agent.torch.reductions import bytes_of, kind_of, on_slots, reduction

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
INTEGERS = (torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64)
TYPES = (torch.bool, *INTEGERS, *FLOATS)
PAIRS = list(itertools.product(TYPES, ["SUM", "AVG", "MIN", "MAX", "BOR", "BAND"]))
DEFINED = {
    **{dtype: {"SUM", "AVG", "MIN", "MAX"} for dtype in FLOATS},
    **{dtype: {"SUM", "AVG", "MIN", "MAX", "BOR", "BAND"} for dtype in INTEGERS},
    torch.bool: {"SUM", "MIN", "MAX", "BOR", "BAND", "PRODUCT"},
}


@pytest.mark.parametrize("kind", ["SUM", "AVG", "MIN", "MAX", "BOR", "BAND", "PRODUCT", "BXOR"])
def test_every_operation_is_known_by_its_name(kind: str) -> None:
    assert kind_of(getattr(dist.ReduceOp, kind)) == kind
    assert kind_of(dist.ReduceOp(getattr(dist.ReduceOp, kind))) == kind


@pytest.mark.parametrize(("dtype", "kind"), PAIRS)
def test_a_pair_is_planned_or_refused_by_name(dtype: torch.dtype, kind: str) -> None:
    if not on_slots(dtype, kind):
        assert kind not in DEFINED[dtype]
        return
    tensor = torch.ones(5, dtype=dtype)
    if kind in DEFINED[dtype]:
        planned = reduction(tensor, tensor, kind, 1)
        planned.finish()  # of one worker, whose values are the result
        assert torch.equal(tensor, torch.ones(5, dtype=dtype))
    else:
        with pytest.raises(UnsupportedTypeError, match=f"{kind} is not defined for {dtype}"):
            reduction(tensor, tensor, kind, 1)


def test_floats_are_reduced_where_they_are() -> None:
    tensor = torch.ones(3, 4)
    planned = reduction(tensor, tensor, "SUM", 1)
    assert planned.array.ctypes.data == planned.out.ctypes.data == tensor.data_ptr()


def test_narrow_sums_that_do_not_fit_are_errors() -> None:
    tensor = torch.tensor([100, 1], dtype=torch.int8)
    planned = reduction(tensor, tensor, "SUM", 1)
    planned.out[:] *= 2
    with pytest.raises(SumOverflowError, match=r"1 sums do not fit torch.int8"):
        planned.finish()


@pytest.mark.parametrize("dtype", [torch.int8, torch.int16, torch.int32, torch.int64])
def test_an_average_of_integers_drops_the_fraction_towards_zero(dtype: torch.dtype) -> None:
    tensor = torch.tensor([7, -7, 100, 2], dtype=dtype)
    planned = reduction(tensor, tensor, "AVG", 2)
    planned.out[:] = [7, -7, 200 if dtype != torch.int8 else 254, 4]  # the sums; an int8 could not hold 254
    planned.finish()
    assert tensor.tolist() == [3, -3, 127 if dtype == torch.int8 else 100, 2]


def test_and_is_planned_as_or_of_complements() -> None:
    tensor = torch.tensor([0b1100, 0b1010, 7], dtype=torch.uint8)
    planned = reduction(tensor, tensor, "BAND", 1)
    planned.out.view("u1")[:3] |= ~torch.tensor([0b1010, 0b1010, 255], dtype=torch.uint8).numpy()
    planned.finish()
    assert tensor.tolist() == [0b1000, 0b1010, 7]


def test_bytes_are_those_of_the_tensor_itself() -> None:
    tensor = torch.arange(6).reshape(2, 3)
    assert bytes_of(tensor).ctypes.data == tensor.data_ptr()
