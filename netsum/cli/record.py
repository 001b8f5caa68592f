"""`netsum sim record`: a training of the user's own as a trace."""

from pathlib import Path

from netsum.cli.texts import epilog
from netsum.options import json_option
from netsum_common.options import argument, option

COMMAND = argument("The training: program and arguments.", metavar="COMMAND...")
_SHOWN = 10  # Every how many steps a line says so, where there is no terminal.

EPILOG = epilog(
    "netsum sim record -- torchrun --nproc-per-node 4 train.py  # a file for each of four ranks",
    "netsum sim record --folder runs/mine -- python train.py  # of a script that starts its ranks",
    "netsum sim run traces --set job.workload=runs/record --set job.workers=4  # run it",
    ok="each rank's trace was written, and the training was ended",
    fault="the training failed, ended too early, or communicates nothing",
)


def sim_record(
    command: tuple[str, ...] = COMMAND,
    folder: Path = option("Folder of the traces.", Path("runs/record")),
    steps: int = option("Steps to time; the same number is profiled afterwards.", 20, within=(3, 10_000)),
    timeout: float = option("Time limit of the recording.", 3600.0, within=(1.0, None), metavar="SECONDS"),
    as_json: bool = json_option(),
) -> None:
    """Record a step of a PyTorch training on CPUs as a Chakra trace that `workload = "FILE"` reads.

    The training runs as it is, on this machine, and is ended when all ranks are recorded. Its backend is gloo or netsum.
    """
    import sys

    from netsum.record.running import record
    from netsum.terminal import echo, echo_progress, print_json

    shown = -_SHOWN

    def show(step: int, last: int) -> None:
        nonlocal shown
        if sys.stderr.isatty() or step >= shown + _SHOWN:
            shown = step
            echo_progress(f"step {step + 1} of {last + 1}", again=sys.stderr.isatty())

    try:
        recorded = record(command, folder, steps, timeout, show)
    finally:
        echo_progress("", again=True)
    if as_json:
        print_json({"place": str(recorded.place), "ranks": recorded.ranks})
        return
    for number, rank in enumerate(recorded.ranks):
        times = sorted(rank["steps_ns"])
        first, middle, third = (times[len(times) * at // 4] / 1e6 for at in (1, 2, 3))
        sizes = [size for _, size in rank["communications"]]
        echo(
            f"rank {number}: a step takes {middle:.2f} ms ({first:.2f} to {third:.2f}), of which "
            f"{rank['computing_ns'] / 1e6:.2f} ms computing; {len(sizes)} communications of {sum(sizes):,} bytes"
        )
    echo(f"written: {recorded.place}")
    count = len(recorded.ranks)
    echo(f"run it:  netsum sim run traces --set job.workload={recorded.place} --set job.workers={count}")
