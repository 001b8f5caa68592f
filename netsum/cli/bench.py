"""`netsum bench`: the measurements that the docs quote."""

import functools
from collections.abc import Callable
from importlib import import_module
from typing import Annotated

import typer

from netsum.cli.options import SlotsOption
from netsum.cli.parameters import Commands
from netsum.cli.texts import epilog
from netsum_common.lane_counts import Lanes, LocalLanes

bench_app = Commands(help="Measure what the docs quote.")

_EXAMPLES = "digits_cnn,char_lstm,wide_embedding,wide_embedding_sparse,resnet18"
_SIZES = "4KiB,64KiB,1MiB,16MiB,64MiB"
_SPACED = _EXAMPLES.replace(",", ", ")  # As help shows it, which does not break words.

BothLanes = Annotated[Lanes | None, typer.Option(help="int32 values a packet carries; default: both.")]
OneLanes = Annotated[Lanes, typer.Option(help="int32 values a packet carries.")]
Runs = Annotated[int, typer.Option(min=1, help="Runs of each measurement, in turn.")]
Rate = Annotated[str, typer.Option(metavar="RATE", help="Rate of every link.")]

Options = Callable[..., None]


def _measures(name: str, module: str, *examples: tuple[str, str], ok: str) -> Callable[[Options], Options]:
    """Make a command of a function that declares options: `run` of a module of `netsum.bench` takes them by name."""

    def register(declared: Options) -> Options:
        @bench_app.command(name, epilog=epilog(*examples, ok=ok))
        @functools.wraps(declared)
        def measure(**options: object) -> None:
            import_module(f"netsum.bench.{module}").run(**options)

        return declared

    return register


@_measures(
    "engine",
    "engine",
    ("netsum bench engine", "both programs, three runs: the table in docs/performance.md"),
    ok="measured, beside what is installed",
)
def bench_engine(runs: Runs = 3, lanes: BothLanes = None) -> None:
    """Packets/s of the embedded engine and of C written by hand (with a C compiler): same packets."""


@_measures(
    "host",
    "host",
    ("netsum bench host --lanes 64", "five runs: the table in docs/performance.md"),
    ok="measured",
)
def bench_host(runs: Runs = 5, lanes: OneLanes = "256") -> None:
    """Nanoseconds an element costs the worker library to quantize, beside a plain copy."""


@_measures(
    "simulator",
    "simulator",
    ("netsum bench simulator --hosts 8,32", "two sizes: the table in docs/simulator-accuracy.md"),
    ok="measured, and every sum was right",
)
def bench_simulator(
    hosts: Annotated[str, typer.Option(metavar="N,…", help="Numbers of hosts.")] = "8,32,128,1024",
    packets: Annotated[int, typer.Option(min=1, help="Packets of a run, on all links.")] = 320_000,
    runs: Runs = 3,
) -> None:
    """Packets/s of the network simulator: all-reduces on a star in virtual time."""


@_measures(
    "veth",
    "veth",
    ("sudo netsum bench veth --lanes 256", "three runs of each switch"),
    ok="measured; without BMv2, the other switches alone",
)
def bench_veth(
    runs: Runs = 3,
    lanes: BothLanes = None,
    workers: Annotated[int, typer.Option(min=1, max=32, help="Ports of the switch.")] = 2,
    slots: Annotated[int, typer.Option(min=2, max=256, help="Chunks under way; a power of two.")] = 256,
    packets: Annotated[int, typer.Option(min=1, help="Packets of a run.")] = 400_000,
    bmv2: Annotated[bool, typer.Option(help="Measure BMv2 too, if it is installed.")] = True,
) -> None:
    """Packets/s of the embedded switch, the kernel (XDP) and BMv2 on the same virtual cables; needs root."""


@_measures(
    "allreduce",
    "allreduce",
    ("netsum bench allreduce", "star-4 at 100 Mbit/s: about ten minutes"),
    ("netsum bench allreduce --topology star-8 --rate 50mbit --loss 0", "eight workers, no loss"),
    (
        "netsum bench allreduce --loss 0 --densities 10,1 --bits 8,4",
        "zeros and few bits, beside dense arrays",
    ),
    ok="all was measured, and every sum was right",
)
def bench_allreduce(
    topology: Annotated[
        str, typer.Option(help="A topology's name or file, as for `netsum testbed up`.")
    ] = "star-4",
    rate: Rate = "100mbit",
    sizes: Annotated[
        str,
        typer.Option(
            metavar="SIZES", show_default=_SIZES.replace(",", ", "), help="Sizes of each worker's array."
        ),
    ] = _SIZES,
    lossy_sizes: Annotated[
        str, typer.Option(metavar="SIZES", help="Sizes where packets are lost.")
    ] = "64KiB,1MiB,16MiB",
    loss: Annotated[
        str, typer.Option(metavar="PERCENT,…", help="Losses of every link, each way; each is measured.")
    ] = "0,0.1,1",
    densities: Annotated[
        str, typer.Option(metavar="PERCENT,…", help="Shares of a worker's blocks that are not zero, as well.")
    ] = "",
    overlaps: Annotated[
        str,
        typer.Option(
            metavar="OVERLAP,…", help="Overlap of these blocks between workers: full, random, none."
        ),
    ] = "full,random,none",
    bits: Annotated[str, typer.Option(metavar="BITS,…", help="Widths of packed elements, as well.")] = "",
    lanes: Annotated[
        str, typer.Option(metavar="LANES,…", help="int32 values a packet carries; each is measured.")
    ] = "256,64",
    switches: Annotated[
        str,
        typer.Option(
            metavar="SWITCH,…", help="Who runs the P4 program: embedded, xdp, bmv2; each is measured."
        ),
    ] = "embedded",
    repeats: Annotated[int, typer.Option(min=1, help="How often each array is reduced and timed.")] = 3,
    slots: SlotsOption = None,
    gloo: Annotated[bool, typer.Option(help="Measure Gloo too.")] = True,
    per_host: Annotated[
        int, typer.Option(min=1, max=16, help="Ranks on each host; with several also without a leaf there.")
    ] = 1,
) -> None:
    """All-reduces of netsum and of torch's Gloo on the same limited links: a table; needs root and PyTorch.

    Results go to `runs/bench-allreduce-DATE-TIME` as JSON and Markdown.
    """


@_measures(
    "torch",
    "torch_times",
    ("netsum bench torch", "two and four processes on loopback, 4 KiB to 64 MiB, and the examples"),
    ("netsum bench torch --workers 2 --examples ''", "the all-reduces alone"),
    (
        "sudo netsum bench torch --topology star-4 --sizes 16MiB --collectives reduce_scatter,all_gather --examples ''",
        "what FSDP does, on limited links, with the bytes that a rank receives",
    ),
    ("sudo netsum bench torch --topology star-4 --sizes ''", "the examples on four hosts at 100 Mbit/s"),
    ok="all was measured, and every sum was right",
)
def bench_torch(
    workers: Annotated[str, typer.Option(metavar="N,…", help="On loopback: numbers of processes.")] = "2,4",
    topology: Annotated[
        str | None, typer.Option(help="Instead of loopback: a topology, as for `netsum testbed up` (root).")
    ] = None,
    rate: Rate = "100mbit",
    loss: Annotated[str, typer.Option(metavar="PERCENT", help="Loss of every link, each way.")] = "0",
    sizes: Annotated[
        str, typer.Option(metavar="SIZES", help="Sizes of the float32 tensors; empty: none.")
    ] = _SIZES,
    collectives: Annotated[
        str, typer.Option(metavar="NAMES", help="all_reduce, reduce_scatter, all_gather: what is measured.")
    ] = "all_reduce",
    runs: Runs = 5,
    lanes: Annotated[
        LocalLanes | None,
        typer.Option(
            help="int32 values a packet carries. Default: 1024; 256 with --topology, which has no 1024."
        ),
    ] = None,
    examples: Annotated[
        str,
        typer.Option(metavar="NAME,…", show_default=_SPACED, help="Examples to train as well; empty: none."),
    ] = _EXAMPLES,
    dtypes: Annotated[
        str,
        typer.Option(
            metavar="TYPES", help="float32, bfloat16: of the tensors, and of the gradients on their way."
        ),
    ] = "float32",
    device: Annotated[
        str,
        typer.Option(
            metavar="cpu|cuda",
            help="cpu, or cuda: all processes' tensors on one GPU; examples stay on the CPU.",
        ),
    ] = "cpu",
) -> None:
    """torch.distributed over netsum and over Gloo in the same processes, on plain loopback or a testbed; needs PyTorch.

    All-reduces of the sizes that DDP's buckets have, and steps of the examples: how much of a step is communication.
    """
