"""`netsum allreduce`."""

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer

from netsum.cli.texts import epilog
from netsum.command_errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from netsum.allreduce.plan import Plan
    from netsum.allreduce.session import MeasuredPlan
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


EPILOG = epilog(
    "netsum allreduce  # four processes of this machine over an embedded switch",
    "netsum allreduce --workers 8 --lanes 64 --drop-percent 1  # eight, with 1 % of the packets lost each way",
    "netsum allreduce --testbed star-4 --sizes 64MiB  # between all hosts of a testbed",
    "netsum allreduce -b 1K -e 16M -f 4 --dtypes float32  # a sweep of sizes, as nccl-tests has it",
    "NETSUM_CONTROLLER=10.0.0.9:28276 netsum allreduce --job test --rank 0 --world-size 2"
    "  # one rank, on its own host; the other is started elsewhere",
    "netsum allreduce --json | jq '.results[] | {bytes, rate: .elements_per_s.median}'  # for a script",
    ok="all sums were right, bit for bit, at all ranks",
    fault="one was not, or the all-reduce could not be done; standard error says why",
)

FAILED_RUNS = "runs"


def allreduce(options: AllReduceOptions) -> None:
    """Add arrays between hosts, check every sum bit for bit, and print the speed.

    Without a controller, a switch and ranks are started on this machine's loopback, and gone afterwards. With `--testbed`, a rank
    runs on each host of a testbed. With a controller, `--workers` ranks of this machine join a job through it; or this process is
    one rank of many, on whichever hosts: `--rank`, `--world-size` and `--job`.

    Columns are those of nccl-tests: `algbw` is the size of one rank's array over the median time, `busbw` that times
    2(n − 1)/n for n ranks. Times are until the last rank has its result.

    `union` is the share of the array's blocks that travelled, where blocks of zeros were left out. The numbers follow from
    the seed, so every rank knows the expected sums; they are chosen so that no sum is rounded. With `--bits`, sums are right
    if they are within the bound of their error.
    `--json` prints one document; with `--rank`, a line for each round.
    """
    plan = _plan(options)
    if options.rank is not None:
        if options.job is None or options.world_size is None or options.controller is None:
            raise UsageError(
                "a single --rank also needs --job, --world-size and --controller (or NETSUM_CONTROLLER)"
            )
        if options.workers is not None or options.testbed is not None:
            raise UsageError("--rank runs a single rank: leave out --workers and --testbed")
        if not _one_rank(plan, options):
            raise typer.Exit(1)
        return
    if options.world_size is not None:
        raise UsageError("--world-size requires --rank; use --workers for ranks on this machine")
    if options.testbed is not None and options.workers is not None:
        raise UsageError("--workers cannot be used with --testbed: name the hosts with --hosts")
    if options.testbed is None and options.hosts:
        raise UsageError("--hosts requires --testbed")
    outcome = _all_ranks(plan, options)
    _print_outcome(outcome, options.as_json)
    if not outcome.correct:
        raise typer.Exit(1)


def _plan(options: AllReduceOptions) -> "Plan":
    from netsum.allreduce.plan import Plan, size_sweep

    if (options.smallest is None) != (options.largest is None):
        raise UsageError("a sweep of sizes needs both --minbytes and --maxbytes")
    sizes = options.sizes
    if options.smallest is not None and options.largest is not None:
        sizes = size_sweep(options.smallest, options.largest, options.factor)
    return Plan.of(
        sizes,
        options.dtypes,
        options.op,
        repeats=options.repeats,
        warmups=options.warmups,
        seed=options.seed,
        timeout_s=options.timeout,
        sparse=options.sparse,
        bits=options.bits,
        rounding=options.rounding,
        density=options.density / 100,
        overlap=options.overlap,
    )


def _all_ranks(plan: "Plan", options: AllReduceOptions) -> "MeasuredPlan":
    """Run all ranks, wherever they are, and show how far they are."""
    from contextlib import ExitStack
    from pathlib import Path

    from netsum.allreduce.session import JobPlan, local_sites, loopback_controller, run_between, testbed_sites
    from netsum.cli.controller_choice import choose_controller
    from netsum.compiling import await_compiled, compiling
    from topologies.run_folder import find_testbed
    from topologies.runs import run_folder

    testbed, workers, quiet = options.testbed, options.workers or 4, options.as_json
    hosts = [host.strip() for host in options.hosts.split(",") if host.strip()]
    sites = local_sites(workers) if testbed is None else testbed_sites(find_testbed(testbed), hosts)
    with ExitStack() as stack:
        folder = stack.enter_context(run_folder(keep_on_error=Path(FAILED_RUNS)))
        compiler = stack.enter_context(compiling(folder))  # Here, lest every rank does.
        if testbed is not None or options.controller is not None:
            address = choose_controller(options.controller, testbed).address
        else:
            drop_ppm = round(options.drop_percent * 10_000)
            address = stack.enter_context(loopback_controller(workers, options.lanes, drop_ppm, folder))
        with _waiting("compiling the worker's machine code, once after an installation", quiet):
            await_compiled(compiler)
        on_message = stack.enter_context(
            _progress(len(sites) * len(plan.exchanges) * (plan.warmups + plan.repeats), quiet)
        )
        job = JobPlan(address, options.job, options.slots, options.join_token)
        return run_between(plan, sites, job, folder, on_message)


def _waiting(what: str, quiet: bool) -> "AbstractContextManager[object]":
    """Print the current step on a terminal."""
    from contextlib import nullcontext

    from netsum.terminal import console

    screen = console(stderr=True)
    return nullcontext() if quiet or not screen.is_terminal else screen.status(what)


@contextmanager
def _progress(rounds: int, quiet: bool) -> "Iterator[Callable[[int, dict[str, Any]], None]]":
    """Show how far the ranks are, on a terminal."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    from netsum.terminal import console

    screen = console(stderr=True)
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    with Progress(
        *columns, console=screen, transient=True, disable=quiet or not screen.is_terminal
    ) as progress:
        task = progress.add_task("ranks are starting", total=rounds)

        def on_message(rank: int, message: dict[str, Any]) -> None:
            from host_agent.words import plural

            del rank
            if message["event"] == "round":
                what = f"{message['dtype']} {message['op']}, {plural(message['elements'], 'element')}"
                progress.update(task, description=what, advance=1)

        yield on_message


def _print_outcome(outcome: "MeasuredPlan", as_json: bool) -> None:
    from host_agent.words import plural
    from netsum.allreduce.plan import size_text
    from netsum.terminal import ProgressRows, count_text, digits_text, echo, print_json

    if as_json:
        print_json(outcome.to_json())
        return
    hosts = f"{plural(len(outcome.hosts), 'rank')} on {', '.join(dict.fromkeys(outcome.hosts))}"
    echo(f"job {outcome.job}: {hosts}")
    echo(
        f"{outcome.lanes} lanes a packet, {plural(outcome.slots, 'slot')}; {outcome.rows[0].repeats} timed of each"
    )
    rows = ProgressRows(
        *(">size", ">?elements", "type", "op", ">ms", ">least", ">most", ">algbw\nMB/s", ">busbw\nMB/s"),
        *(">?elements/s", ">?union", ">retrans-\nmissions", "right", "?same\nbits"),
        key=3,
    )
    for row in outcome.rows:
        rows.add(
            size_text(row.bytes),
            f"{row.elements:,}",
            row.dtype,
            row.op,
            *(
                digits_text(seconds * 1e3)
                for seconds in (row.seconds.median, row.seconds.least, row.seconds.most)
            ),
            *(digits_text(rate / 1e6) for rate in (row.algbw_bytes_per_s, row.busbw_bytes_per_s)),
            count_text(row.elements_per_s.median),
            "" if row.union_share is None else f"{row.union_share:.1%}",
            "" if row.retransmissions is None else f"{row.retransmissions:,}",
            "yes" if row.correct else "NO",
            "yes" if row.same_bits else "NO",
        )
    rows.print()
    if outcome.counters:
        counted = ", ".join(
            f"{count:,} {name.replace('_', ' ')}" for name, count in outcome.counters.items() if count
        )
        echo(f"the switch counted {counted}")


def _one_rank(plan: "Plan", options: AllReduceOptions) -> bool:
    from host_agent.words import plural
    from netsum.allreduce.plan import size_text
    from netsum.allreduce.worker import RankOptions, take_part
    from netsum.terminal import count_text, echo, print_json_line

    rank, job = options.rank, options.job
    assert rank is not None and job is not None and options.world_size is not None  # noqa: PT018

    def print_round(message: dict[str, Any]) -> None:
        if message["event"] == "joined":
            line = f"rank {rank} is host {message['host']} of job {job}: {message['lanes']} lanes, "
            line += plural(message["slots"], "slot")
        elif message["event"] == "round":
            line = f"{message['dtype']} {message['op']} {size_text(message['bytes'])}: {message['seconds'] * 1e3:,.2f} ms, "
            line += f"{count_text(message['elements_per_s'])} elements/s, {message['retransmissions']:,} retransmissions, "
            line += f"checksum {message['checksum']}" + ("" if message["correct"] else ", WRONG")
            line += "" if message["repeat"] >= 0 else " (warm-up)"
        else:
            line = (
                plural(message["rounds"], "result")
                + ", "
                + ("all right" if message["correct"] else "NOT ALL RIGHT")
            )
        echo(line)

    one = RankOptions(
        job,
        rank,
        options.world_size,
        plan,
        options.controller,
        options.slots,
        options.join_token,
        options.join_timeout,
    )
    return take_part(one, print_json_line if options.as_json else print_round)
