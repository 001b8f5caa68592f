"""Options of `netsum allreduce`."""

from dataclasses import dataclass
from typing import Literal

from netsum.options import join_token_option, json_option, lanes_option, slots_option
from netsum_common.lane_counts import Lanes
from netsum_common.names import check_name
from netsum_common.options import option


@dataclass(frozen=True)
class AllReduceOptions:
    """Arrays, and the ranks that reduce them."""

    sizes: str = option(
        "Sizes of the array at each rank, in bytes, KiB, MiB or GiB.", "4KiB,256KiB,16MiB", metavar="SIZES"
    )
    dtypes: str = option("float32, float64, float16, int32, int64.", "float32,int32", metavar="TYPES")
    op: str = option("sum, min, max; bor of int32 and int64.", "sum")
    sparse: Literal["auto", "always", "never"] = option(
        "Leave out blocks that are zero at every rank; auto: from 1 MiB on.", "auto"
    )
    bits: Literal["full", 16, 8, 4, 2] = option(
        "Bits of an element on the wire, for sums of float32 and float16.", "full"
    )
    rounding: Literal["nearest", "stochastic"] = option("Rounding to few bits.", "nearest")
    density: float = option(
        "Share of the blocks of a rank's array that are not zero.",
        100.0,
        within=(0.0, 100.0),
        metavar="PERCENT",
    )
    overlap: Literal["full", "random", "none"] = option(
        "Whether the nonzero blocks are the same at all ranks.", "random"
    )
    repeats: int = option("How often each array is reduced and timed.", 3, within=(1, None))
    warmups: int = option("Untimed repeats before the timed ones; they are checked too.", 1, within=(0, None))
    seed: int = option("Seed of the numbers; the same at all ranks.", 0, within=(0, None))
    timeout: float = option(
        "An all-reduce fails after this time without progress.",
        60.0,
        within=(0.1, None),
        metavar="SECONDS",
    )
    smallest: str | None = option(
        "Instead of --sizes: a sweep from this size.", None, "-b", "--minbytes", metavar="SIZE"
    )
    largest: str | None = option("The largest size of the sweep.", None, "-e", "--maxbytes", metavar="SIZE")
    factor: int = option(
        "How many times larger each size of the sweep is.", 2, "-f", "--stepfactor", within=(2, None)
    )
    slots: str | None = slots_option()
    workers: int | None = option("Processes on this machine, one a rank. Default: 4.", within=(1, 32))
    lanes: Lanes = lanes_option(
        256,
        "On loopback: int32 values a packet carries. Networks have what their testbed or controller says.",
    )
    drop_percent: float = option("On loopback: packets lost on purpose, each way.", 0.0, within=(0.0, 50.0))
    testbed: str | None = option("Run the ranks on hosts of this testbed.", metavar="NAME")
    hosts: str = option("With --testbed: the hosts, such as h1,h2. Default: all.", "", metavar="HOSTS")
    controller: str | None = option(
        "Join through this controller; also unix:PATH.", metavar="HOST:PORT", env="NETSUM_CONTROLLER"
    )
    job: str | None = option("Name of the job. With --rank: required.", metavar="NAME", read=check_name)
    rank: int | None = option("Run only this rank; the others run elsewhere.", within=(0, None))
    world_size: int | None = option("With --rank: the number of ranks.", within=(1, 32))
    join_token: str = join_token_option()
    join_timeout: float = option(
        "With --rank: how long to wait for the other ranks.", 120.0, within=(0.1, None), metavar="SECONDS"
    )
    as_json: bool = json_option()
