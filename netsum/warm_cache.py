"""Compiles the machine code of a first run, for the build of an image: ``python -m netsum.warm_cache``.

The worker's machine code, and where the extras ``controller`` and ``sim`` are installed also that of the switch on
loopback. It is kept beside the sources if they can be written, else in NUMBA_CACHE_DIR or the user's cache folder. Machine
code is for the kind of CPU it was compiled on, unless NUMBA_CPU_NAME says ``generic``.
"""

import importlib.util
import sys
import time

import numpy as np

from host_agent.communicator import compile_ahead
from host_agent.errors import NetsumError
from host_agent.joining import join, start_service

_OF_A_SWITCH = ("grpc", "p4", "llvmlite")


def main() -> int:
    """Compile; return the exit status."""
    if len(sys.argv) > 1:
        print("netsum: python -m netsum.warm_cache takes no arguments", file=sys.stderr)
        return 2
    began = time.monotonic()
    try:
        compile_ahead()
        print(f"worker: ready after {time.monotonic() - began:.1f} s", flush=True)
        missing = [name for name in _OF_A_SWITCH if importlib.util.find_spec(name) is None]
        if missing:
            print(
                f"switch on loopback: left out, as the extras controller and sim are not installed ({missing[0]})"
            )
            return 0
        began = time.monotonic()
        with (
            join(start_service(1), job="warm-cache", rank=0, world_size=1) as membership,
            membership.communicator() as alone,
        ):
            alone.allreduce(np.ones(1000, np.float32))
    except NetsumError as error:
        print(f"netsum: {error}", file=sys.stderr)
        return 1
    print(f"switch on loopback: ready after {time.monotonic() - began:.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
