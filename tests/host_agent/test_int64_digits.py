import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from host_agent.codecs.digits import digit_bits, from_digits, to_digits
from host_agent.collectives.int64 import AllReduceInt64Request
from host_agent.errors import UnsupportedTypeError
from host_agent.wire import Admission

INT64 = st.integers(-(2**63), 2**63 - 1)


@given(st.lists(st.lists(INT64, min_size=3, max_size=3), min_size=1, max_size=32))
def test_sums_of_digits_are_digits_of_the_sums(workers: list[list[int]]) -> None:
    bits = digit_bits(len(workers))
    digits = sum(to_digits(np.array(values, np.int64), bits).astype(np.int64) for values in workers)
    assert np.abs(digits).max() < 2**31
    out = np.empty(3, np.int64)
    overflowed = from_digits(np.asarray(digits, np.int32), out, bits)
    sums = [sum(values) for values in zip(*workers, strict=True)]
    nearest = [min(max(total, -(2**63)), 2**63 - 1) for total in sums]
    assert overflowed == sum(total != fitting for total, fitting in zip(sums, nearest, strict=True))
    assert out.tolist() == nearest


@pytest.mark.parametrize("world_size", [64, 65, 1024, 4096])
@pytest.mark.parametrize("value", [2**63 - 1, -(2**63), 2**40 + 1, -1, 0x5555_5555_5555_5555])
def test_digits_of_large_jobs_fit_and_what_does_not_is_an_overflow(world_size: int, value: int) -> None:
    bits = digit_bits(world_size)
    digits = to_digits(np.array([value], np.int64), bits).astype(np.int64) * world_size
    assert np.abs(digits[:2]).max() < 2**31
    out = np.empty(1, np.int64)
    overflowed = from_digits(np.clip(digits, -(2**31), 2**31 - 1).astype(np.int32), out, bits)
    total = value * world_size
    nearest = min(max(total, -(2**63)), 2**63 - 1)
    assert (overflowed, out[0]) == (int(total != nearest), nearest)


@pytest.mark.parametrize("value", [-1, 1, 1 - 2**24, 2**24 - 1])
def test_values_near_zero_of_either_sign_have_no_higher_digits(value: int) -> None:
    assert not to_digits(np.array([value], np.int64), digit_bits(2))[1:].any()


def test_what_is_not_int64_is_refused() -> None:
    with pytest.raises(UnsupportedTypeError, match="expected an int64 array"):
        AllReduceInt64Request(np.zeros(3, np.int32), "sum").plan(Admission(1, 0, 1, 0, 1, 1, 64), 0)
