"""``netsum bench hook``: what DDP's communication hook costs with the identity compressor, on plain loopback."""

import os
import statistics
import tempfile
from collections import defaultdict
from importlib import import_module
from pathlib import Path

from netsum.allreduce.report import Message
from netsum.allreduce.session import loopback_controller
from netsum.bench.machine import machine_and_date, use_examples
from netsum.bench.testbeds import run_ranks
from netsum.terminal import Rows

_SILENCE_S = 300.0


def run(workers: int, steps: int) -> None:
    """Take steps without and with the hook in turn, and print their medians."""
    use_examples()
    import_module("torch")  # Its ranks need it: the command says so before it starts them.
    print(machine_and_date())
    print(f"load before: {os.getloadavg()[0]:.1f}; {workers} processes, {steps} steps of each kind")
    times: dict[tuple[str, str], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))

    def take(rank: int, message: Message) -> None:
        if message["event"] == "step":
            times[message["backend"], message["model"]][message["kind"]].append(message["ms"])

    with (
        tempfile.TemporaryDirectory() as folder,
        loopback_controller(workers, 256, 0, Path(folder)) as controller,
    ):
        os.environ["NETSUM_CONTROLLER"] = controller
        run_ranks("hook_rank", str(steps), workers, Path(folder), _SILENCE_S, take)
    table = Rows("over", "model", ">without, ms", ">identity, ms", ">difference", key=2)
    for (backend, model), kinds in times.items():
        plain, hooked = (statistics.median(kinds[kind]) for kind in ("plain", "identity"))
        # Of neighbouring steps: what else the machine does then concerns both.
        share = statistics.median(
            one / other - 1 for one, other in zip(kinds["identity"], kinds["plain"], strict=True)
        )
        table.add(backend, model, f"{plain:.1f}", f"{hooked:.1f}", f"{share:+.1%}")
    table.print()
