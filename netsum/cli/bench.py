"""`netsum bench`: the measurements that the docs quote."""

from typing import Annotated, get_args

import typer

from netsum.cli.options import Lanes, SlotsOption, SwitchKind
from netsum.cli.texts import epilog
from netsum.command_errors import UsageError

bench_app = typer.Typer(help="Measure what the docs quote.", no_args_is_help=True)

_EXAMPLES = "digits_cnn,char_lstm,wide_embedding,wide_embedding_sparse"
_SPACED = _EXAMPLES.replace(",", ", ")  # As help shows it, which does not break words.

BothLanes = Annotated[Lanes | None, typer.Option(help="int32 values a packet carries; default: both.")]
OneLanes = Annotated[Lanes, typer.Option(help="int32 values a packet carries.")]
BothRuns = Annotated[int, typer.Option(min=1, help="Runs of each switch and program.")]
TurnRuns = Annotated[int, typer.Option(min=1, help="Runs of each measurement, both backends in turn.")]
Topology = Annotated[str, typer.Option(help="A topology's name or file, as for `netsum testbed up`.")]
Rate = Annotated[str, typer.Option(metavar="RATE", help="Rate of every link.")]
Loss = Annotated[str, typer.Option(metavar="PERCENT", help="Loss of every link, each way.")]
Dtypes = Annotated[
    str,
    typer.Option(
        metavar="TYPES", help="float32, bfloat16: of the tensors, and of the gradients on their way."
    ),
]


def _lane_counts(lanes: Lanes | None) -> tuple[int, ...]:
    return tuple(map(int, get_args(Lanes) if lanes is None else (lanes,)))


@bench_app.command(
    "engine",
    epilog=epilog(
        ("netsum bench engine", "both programs, three runs: the table in docs/performance.md"),
        ok="measured, beside what is installed",
    ),
)
def bench_engine(
    runs: BothRuns = 3,
    lanes: BothLanes = None,
) -> None:
    """Packets/s of the embedded engine, of C written by hand (with a C compiler), and of BMv2 where it is: same packets."""
    from netsum.bench.engine import run

    run(runs, _lane_counts(lanes))


@bench_app.command(
    "host",
    epilog=epilog(
        ("netsum bench host --lanes 64", "five runs: the table in docs/performance.md"), ok="measured"
    ),
)
def bench_host(
    runs: Annotated[int, typer.Option(min=1, help="Runs of each operation.")] = 5,
    lanes: OneLanes = "256",
) -> None:
    """Nanoseconds an element costs the worker library to quantize, beside a plain copy."""
    from netsum.bench.host import run

    run(runs, int(lanes))


@bench_app.command(
    "veth",
    epilog=epilog(
        ("sudo netsum bench veth --lanes 256", "three runs of each switch"),
        ok="measured; without BMv2, the embedded engine alone",
    ),
)
def bench_veth(
    runs: BothRuns = 3,
    lanes: BothLanes = None,
    workers: Annotated[int, typer.Option(min=1, max=32, help="Ports of the switch.")] = 2,
    slots: Annotated[int, typer.Option(min=1, help="Chunks under way; a power of two.")] = 64,
    packets: Annotated[int, typer.Option(min=1, help="Packets of a run.")] = 40_000,
    bmv2: Annotated[bool, typer.Option(help="Measure BMv2 too, if it is installed.")] = True,
) -> None:
    """Packets/s of the embedded switch and BMv2 as processes on the same virtual cables; needs root."""
    from netsum.bench.veth import run

    run(runs, _lane_counts(lanes), workers=workers, slots=slots, packets=packets, bmv2=bmv2)


@bench_app.command(
    "allreduce",
    epilog=epilog(
        ("netsum bench allreduce", "star-4 at 100 Mbit/s: about ten minutes"),
        ("netsum bench allreduce --topology star-8 --rate 50mbit --loss 0", "eight workers, no loss"),
        ok="all was measured, and every sum was right",
    ),
)
def bench_allreduce(
    topology: Topology = "star-4",
    rate: Rate = "100mbit",
    sizes: Annotated[
        str, typer.Option(metavar="SIZES", help="Sizes of each worker's array.")
    ] = "4KiB,64KiB,1MiB,16MiB,64MiB",
    lossy_sizes: Annotated[
        str, typer.Option(metavar="SIZES", help="Sizes where packets are lost.")
    ] = "64KiB,1MiB,16MiB",
    loss: Annotated[
        str, typer.Option(metavar="PERCENT,…", help="Losses of every link, each way; each is measured.")
    ] = "0,0.1,1",
    lanes: Annotated[
        str, typer.Option(metavar="LANES,…", help="int32 values a packet carries; each is measured.")
    ] = "256,64",
    switches: Annotated[
        str,
        typer.Option(metavar="SWITCH,…", help="Who runs the P4 program: embedded, xdp; each is measured."),
    ] = "embedded",
    repeats: Annotated[int, typer.Option(min=1, help="How often each array is reduced and timed.")] = 3,
    slots: SlotsOption = None,
    bmv2_rate: Annotated[
        str,
        typer.Option(metavar="RATE", help="Rate of every link in the comparison on BMv2; 0: no comparison."),
    ] = "10mbit",
    bmv2_sizes: Annotated[
        str, typer.Option(metavar="SIZES", help="Sizes of each worker's array in that comparison.")
    ] = "64KiB,1MiB",
    per_host: Annotated[
        int, typer.Option(min=1, max=16, help="Ranks on each host; with several also without a leaf there.")
    ] = 1,
) -> None:
    """All-reduces of netsum and of torch's Gloo on the same limited links: a table, and plots; needs root and PyTorch.

    Results go to `runs/bench-allreduce-DATE-TIME` as JSON, Markdown, PNG and SVG.
    """
    from netsum.bench.allreduce import run

    run(
        topology=topology,
        rate=rate,
        sizes=sizes,
        lossy_sizes=lossy_sizes,
        loss=loss,
        lanes=lanes,
        switches=switches,
        repeats=repeats,
        slots=slots,
        bmv2_rate=bmv2_rate,
        bmv2_sizes=bmv2_sizes,
        per_host=per_host,
    )


@bench_app.command(
    "sparse",
    epilog=epilog(
        ("netsum bench sparse", "star-4 at 100 Mbit/s: about fifteen minutes"),
        ("netsum bench sparse --sizes 16MiB --densities 10,1 --overlaps random", "a small part of it"),
        ok="all was measured, and every sum was right",
    ),
)
def bench_sparse(
    topology: Topology = "star-4",
    rate: Rate = "100mbit",
    loss: Annotated[str, typer.Option(metavar="PERCENT", help="Loss of every link, each way.")] = "0",
    sizes: Annotated[
        str, typer.Option(metavar="SIZES", help="Sizes of each worker's array.")
    ] = "16MiB,64MiB",
    densities: Annotated[
        str, typer.Option(metavar="PERCENT,…", help="Shares of a worker's blocks that are not zero.")
    ] = "100,50,20,10,5,2,1,0.1",
    overlaps: Annotated[
        str,
        typer.Option(
            metavar="OVERLAP,…", help="Overlap of these blocks between workers: full, random, none."
        ),
    ] = "full,random,none",
    bits: Annotated[
        str, typer.Option(metavar="BITS,…", help="Widths of packed elements; an empty text: none.")
    ] = "16,8,4,2",
    lanes: OneLanes = "256",
    switch: Annotated[SwitchKind, typer.Option(help="Who runs the P4 program.")] = "embedded",
    repeats: Annotated[int, typer.Option(min=1, help="How often each array is reduced and timed.")] = 3,
    slots: SlotsOption = None,
    gloo: Annotated[bool, typer.Option(help="Measure Gloo too.")] = True,
) -> None:
    """All-reduces of arrays with zeros, and of few bits, beside dense ones and torch's Gloo; needs root and PyTorch.

    Results go to `runs/bench-sparse-DATE-TIME` as JSON, Markdown, PNG and SVG.
    """
    from netsum.bench.sparse import run

    run(
        topology=topology,
        rate=rate,
        loss=loss,
        sizes=sizes,
        densities=densities,
        overlaps=overlaps,
        bits=bits,
        lanes=int(lanes),
        switch=switch,
        repeats=repeats,
        slots=slots,
        gloo=gloo,
    )


@bench_app.command(
    "torch",
    epilog=epilog(
        ("netsum bench torch", "two and four processes, 4 KiB to 64 MiB, and the examples"),
        ("netsum bench torch --workers 2 --examples ''", "the all-reduces alone"),
        ok="all was measured, and every sum was right",
    ),
)
def bench_torch(
    workers: Annotated[str, typer.Option(metavar="N,…", help="Numbers of processes.")] = "2,4",
    sizes: Annotated[
        str, typer.Option(metavar="SIZES", help="Sizes of the float32 tensors.")
    ] = "4KiB,64KiB,1MiB,16MiB,64MiB",
    runs: TurnRuns = 5,
    lanes: OneLanes = "256",
    examples: Annotated[
        str,
        typer.Option(metavar="NAME,…", show_default=_SPACED, help="Examples to train as well; empty: none."),
    ] = _EXAMPLES,
    dtypes: Dtypes = "float32",
) -> None:
    """torch.distributed over netsum and over Gloo on plain loopback, where no link limits either; needs PyTorch.

    All-reduces of the sizes that DDP's buckets have, and steps of the examples, in the same processes.
    """
    from netsum.bench.torch_loopback import run

    run(
        workers=_numbers("--workers", workers),
        sizes=sizes,
        runs=runs,
        lanes=int(lanes),
        examples=examples,
        dtypes=dtypes,
    )


@bench_app.command(
    "training",
    epilog=epilog(
        ("netsum bench training", "the examples on four hosts at 100 Mbit/s"),
        ("netsum bench training --topology star-2 --rate 50mbit --loss 0.1", "two hosts, packets lost"),
        ok="all was measured",
    ),
)
def bench_training(
    topology: Topology = "star-4",
    rate: Rate = "100mbit",
    loss: Loss = "0",
    lanes: OneLanes = "256",
    runs: TurnRuns = 3,
    examples: Annotated[
        str, typer.Option(metavar="NAME,…", show_default=_SPACED, help="Examples to train.")
    ] = _EXAMPLES,
    sizes: Annotated[
        str, typer.Option(metavar="SIZES", help="Sizes of tensors to all-reduce as well; empty: none.")
    ] = "",
    dtypes: Dtypes = "float32",
) -> None:
    """Time of a training step over netsum and over Gloo, on the same limited links, in the same run; needs root and PyTorch."""
    from netsum.bench.training import run

    run(
        topology=topology,
        rate=rate,
        loss=loss,
        lanes=int(lanes),
        runs=runs,
        examples=examples,
        sizes=sizes,
        dtypes=dtypes,
    )


@bench_app.command(
    "simulator",
    epilog=epilog(
        ("netsum bench simulator --hosts 8,32", "two sizes: the table in docs/simulator-accuracy.md"),
        ok="measured, and every sum was right",
    ),
)
def bench_simulator(
    hosts: Annotated[str, typer.Option(metavar="N,…", help="Numbers of hosts.")] = "8,32,128,1024",
    packets: Annotated[int, typer.Option(min=1, help="Packets of a run, on all links.")] = 320_000,
    runs: Annotated[int, typer.Option(min=1, help="Runs of each measurement.")] = 3,
) -> None:
    """Packets/s of the network simulator: all-reduces on a star in virtual time."""
    from netsum.bench.simulator import run

    run(_numbers("--hosts", hosts), packets, runs)


def _numbers(option: str, text: str) -> list[int]:
    numbers = [int(each) if each.isdecimal() else 0 for each in text.split(",")]
    if min(numbers) < 1:
        raise UsageError(f"{option}: expected whole numbers such as 2,4, not {text!r}")
    return numbers
