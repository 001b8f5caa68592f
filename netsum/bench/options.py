"""Options of `netsum bench`, a class for each measurement; its documentation is the command's help."""

from dataclasses import dataclass
from typing import Any, Final, Literal

from netsum.options import lanes_option, rate_option, runs_option, slots_option
from netsum_common.lane_counts import Lanes
from netsum_common.options import option

_EXAMPLES: Final = "digits_cnn,char_lstm,wide_embedding,wide_embedding_sparse,resnet18"
_SIZES: Final = "4KiB,64KiB,1MiB,16MiB,64MiB"


def _list(help: str, default: str, metavar: str) -> Any:
    """Declare a list with commas; help shows it with spaces, at which lines break."""
    return option(
        help, default, metavar=metavar, shown=default.replace(",", ", ") if len(default) > 25 else ""
    )


@dataclass(frozen=True)
class GlooComparisonOptions:
    """All-reduces of netsum and of torch's Gloo on the same limited links: a table; needs root and PyTorch.

    Results go to `runs/bench-allreduce-DATE-TIME` as JSON and Markdown.
    """

    topology: str = option("A topology's name or file, as for `netsum testbed up`.", "star-4")
    rate: str = rate_option()
    sizes: str = _list("Sizes of each worker's array.", _SIZES, "SIZES")
    lossy_sizes: str = _list("Sizes where packets are lost.", "64KiB,1MiB,16MiB", "SIZES")
    loss: str = _list("Losses of every link, each way; each is measured.", "0,0.1,1", "PERCENT,…")
    densities: str = _list("Shares of a worker's blocks that are not zero, as well.", "", "PERCENT,…")
    overlaps: str = _list(
        "Overlap of these blocks between workers: full, random, none.", "full,random,none", "OVERLAP,…"
    )
    bits: str = _list("Widths of packed elements, as well.", "", "BITS,…")
    lanes: str = _list("int32 values a packet carries; each is measured.", "256,64", "LANES,…")
    switches: str = _list(
        "Who runs the P4 program: embedded, xdp, bmv2; each is measured.", "embedded", "SWITCH,…"
    )
    repeats: int = option("How often each array is reduced and timed.", 3, within=(1, None))
    slots: str | None = slots_option()
    gloo: bool = option("Measure Gloo too.", True)
    per_host: int = option("Ranks on each host; with several also without a leaf there.", 1, within=(1, 16))


@dataclass(frozen=True)
class TorchOptions:
    """torch.distributed over netsum and over Gloo in the same processes, on plain loopback or a testbed; needs PyTorch.

    All-reduces of the sizes that DDP's buckets have, and steps of the examples: how much of a step is communication.
    """

    workers: str = _list("On loopback: numbers of processes.", "2,4", "N,…")
    topology: str | None = option("Instead of loopback: a topology, as for `netsum testbed up` (root).")
    rate: str = rate_option()
    loss: str = option("Loss of every link, each way.", "0", metavar="PERCENT")
    sizes: str = _list("Sizes of the float32 tensors; empty: none.", _SIZES, "SIZES")
    collectives: str = _list(
        "all_reduce, reduce_scatter, all_gather: what is measured.", "all_reduce", "NAMES"
    )
    runs: int = runs_option(5)
    lanes: Lanes | None = lanes_option(
        None,
        "int32 values a packet carries. Default: 1024; with --topology, the most that its MTU has room for.",
    )
    examples: str = _list("Examples to train as well; empty: none.", _EXAMPLES, "NAME,…")
    dtypes: str = _list(
        "float32, bfloat16: of the tensors, and of the gradients on their way.", "float32", "TYPES"
    )
    device: Literal["cpu", "cuda"] = option(
        "cpu, or cuda: all processes' tensors on one GPU; examples stay on the CPU.", "cpu"
    )
