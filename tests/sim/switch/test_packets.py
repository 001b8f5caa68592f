"""Batches of packets: a copy is a batch of its own, which machine code finds at its own addresses."""

import copy
import pickle
from collections.abc import Callable

import pytest

from sim.switch import Packets


@pytest.mark.parametrize(
    "copied", [copy.deepcopy, lambda batch: pickle.loads(pickle.dumps(batch))], ids=["deepcopy", "pickle"]
)
def test_a_copy_has_addresses_of_its_own(copied: Callable[[Packets], Packets]) -> None:
    batch = Packets.of([(1, b"one"), (2, b"three")])
    assert batch.addresses[0] == batch.frames.ctypes.data
    made = copied(batch)
    assert list(made) == list(batch)
    assert made.addresses[0] == made.frames.ctypes.data != batch.addresses[0]
    assert made.addresses[2:] == (made.lengths.ctypes.data, made.ports.ctypes.data)
