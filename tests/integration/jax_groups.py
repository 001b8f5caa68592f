"""Twelve pairs of JAX's devices reduce at once, over netsum and over JAX's Gloo; every element is compared.

``python -m tests.integration.jax_groups --iterations 30``: an iteration is a reduce-scatter and an all-reduce of every pair, of
float64 with 4 MiB for each rank.
"""

import argparse
import contextlib
import os
import socket
import subprocess
import sys
import time
import traceback

from tests.free_ports import free_port

PAIRS = 12
ELEMENTS = 2**19
FAILED = 200


def over_gloo(iterations: int) -> None:
    """Reduce among the 24 devices of one process, and print how many calls had a wrong element."""
    os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={2 * PAIRS}"
    import jax
    import numpy as np
    from jax.sharding import PartitionSpec as P

    jax.config.update("jax_enable_x64", True)
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(f"127.0.0.1:{free_port()}", 1, 0)
    mesh = jax.make_mesh(
        (PAIRS, 2), ("pair", "rank"), axis_types=(jax.sharding.AxisType.Auto,) * 2, devices=jax.devices()
    )
    spec = P(("pair", "rank"))

    def both(x: object) -> object:
        """Reduce the shard of a device."""
        scattered = jax.lax.psum_scatter(x, "rank", scatter_dimension=0, tiled=True)
        return scattered, jax.lax.psum(x[:ELEMENTS], "rank")  # type: ignore[index]

    run = jax.jit(jax.shard_map(both, mesh=mesh, in_specs=spec, out_specs=(spec, P("pair"))))
    random = np.random.default_rng(1)
    wrong = [0, 0]
    began = time.monotonic()
    for _ in range(iterations):
        given = random.integers(-(2**20), 2**20, (PAIRS, 2, 2 * ELEMENTS)).astype("d")
        scattered, summed = (np.asarray(each) for each in run(given.reshape(-1)))
        total = given.sum(axis=1)
        wrong[0] += int((scattered.reshape(PAIRS, -1) != total).any(axis=1).sum())
        wrong[1] += int((summed.reshape(PAIRS, -1) != total[:, :ELEMENTS]).any(axis=1).sum())
    calls = PAIRS * iterations
    print(
        f"Gloo: {wrong[0]} of {calls} reduce-scatters and {wrong[1]} of {calls} all-reduces wrong, "
        f"{time.monotonic() - began:.0f} s",
        flush=True,
    )


def over_netsum(iterations: int) -> tuple[int, int]:
    """Reduce in 24 processes; return the number of calls with a wrong element, up to 199 a rank, and of ranks that failed."""
    import jax  # noqa: F401

    import netsum.jax  # noqa: F401

    ports = [free_port() for _ in range(PAIRS)]
    children = []
    for number in range(2 * PAIRS):  # Forked, so that JAX is imported once; it has no threads yet.
        child = os.fork()
        if child:
            children.append(child)
            continue
        status = FAILED
        try:
            status = _pair(*divmod(number, 2), ports[number // 2], iterations)
        except Exception:
            traceback.print_exc()
        finally:
            os._exit(status)
    ended = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    return sum(each for each in ended if each != FAILED), ended.count(FAILED)


def _pair(pair: int, rank: int, port: int, iterations: int) -> int:
    """Reduce in one process, and return how many calls had a wrong element there."""
    import jax
    import numpy as np

    import netsum.jax

    time.sleep(pair)  # Else all wait for the service at once, on few cores beyond their patience.
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    jax.config.update("jax_enable_x64", True)
    netsum.jax.init()
    run = jax.jit(lambda x: (netsum.jax.reduce_scatter(x), netsum.jax.allreduce(x[:ELEMENTS])))
    random = np.random.default_rng(pair)
    wrong = 0
    for _ in range(iterations):
        given = random.integers(-(2**20), 2**20, (2, 2 * ELEMENTS)).astype("d")
        scattered, summed = run(given[rank])
        total = given.sum(axis=0)
        wrong += int((np.asarray(scattered) != total[ELEMENTS * rank :][:ELEMENTS]).any())
        wrong += int((np.asarray(summed) != total[:ELEMENTS]).any())
    netsum.jax.shutdown()
    return min(wrong, FAILED - 1)


def _await_service(port: int) -> None:
    until = time.monotonic() + 120
    while time.monotonic() < until:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
            return
        time.sleep(0.1)
    raise TimeoutError("the service does not answer within 120 s")


def main() -> None:
    """Run both."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--iterations", type=int, default=30)
    parser.add_argument("--gloo", action="store_true")
    arguments = parser.parse_args()
    if arguments.gloo:
        over_gloo(arguments.iterations)
        return
    port = free_port()
    service = [sys.executable, "-m", "netsum.local_service", "--places", str(2 * PAIRS)]
    with subprocess.Popen([*service, "--slots", "64", "--listen", f"127.0.0.1:{port}"]) as running:
        try:
            _await_service(port)
            os.environ["NETSUM_CONTROLLER"] = f"127.0.0.1:{port}"
            began = time.monotonic()
            wrong, failed = over_netsum(arguments.iterations)
            calls = PAIRS * arguments.iterations
            print(
                f"netsum: {wrong} wrong at a rank of {calls} reduce-scatters and {calls} all-reduces, {failed} ranks failed, "
                f"{time.monotonic() - began:.0f} s",
                flush=True,
            )
        finally:
            running.terminate()
    subprocess.run([sys.executable, "-m", __spec__.name, "--gloo", "--iterations", str(arguments.iterations)])


if __name__ == "__main__":
    main()
