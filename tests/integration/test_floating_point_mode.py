"""A worker whose thread flushes subnormal numbers to zero, or rounds another way, gets the same bits as the others."""

import ctypes
import ctypes.util
import platform

import numpy as np
import pytest

from host_agent.communicator import Communicator
from tests.integration.simulated.loopback import LoopbackSwitch, on_all

MXCSR_WORD = 7
FLUSH_TO_ZERO, ROUND_UP = 0x8040, 0x4000


def change_mode(bits: int) -> int:
    """Set bits of this thread's MXCSR, as `torch.set_flush_denormal` does; returns its value."""
    libm = ctypes.CDLL(ctypes.util.find_library("m"))
    environment = (ctypes.c_uint32 * 8)()
    libm.fegetenv(environment)
    environment[MXCSR_WORD] |= bits
    libm.fesetenv(environment)
    return environment[MXCSR_WORD] & (FLUSH_TO_ZERO | ROUND_UP)


@pytest.mark.skipif(platform.machine() != "x86_64", reason="sets x86's MXCSR")
@pytest.mark.parametrize("mode", [FLUSH_TO_ZERO, ROUND_UP])
def test_the_bits_do_not_depend_on_a_threads_floating_point_mode(mode: int) -> None:
    rng = np.random.default_rng(0)
    # The largest magnitude of a block decides on how it is scaled: subnormal blocks, such beside normal numbers, and normal ones.
    exponents = np.array([-128] * 64 + [-128, -110] * 32 + [0] * 64)
    parts = [np.ldexp(rng.uniform(-1, 1, exponents.size), exponents).astype(np.float32) for _ in range(2)]

    def act(worker: Communicator) -> tuple[list[bytes], int]:
        set_bits = change_mode(mode if worker.worker_id else 0)
        mine = parts[worker.worker_id]
        results = [worker.allreduce(mine, op).tobytes() for op in ("sum", "mean", "max")]
        results.append(worker.allreduce(mine.astype(np.float64)).tobytes())
        assert change_mode(0) == set_bits, "the caller's mode is as it was"
        return results, set_bits

    with LoopbackSwitch(64, workers=2) as switch:
        workers = [Communicator(admission, bind=address) for admission, address in switch.start_job(4)]
        (normal, normal_mode), (changed, changed_mode) = on_all(workers, act)
        for worker in workers:
            worker.close()
    assert (normal_mode, changed_mode) == (0, mode)
    assert normal == changed
