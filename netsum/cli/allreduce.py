"""`netsum allreduce`."""

from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from netsum.cli.options import (
    AsJson,
    Bits,
    JoinTokenOption,
    Overlap,
    Rounding,
    SlotsOption,
    Sparse,
    check_new_name,
)
from netsum.cli.texts import epilog
from netsum.command_errors import UsageError
from netsum_common.lane_counts import LocalLanes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from contextlib import AbstractContextManager

    from netsum.allreduce.plan import Plan
    from netsum.allreduce.session import MeasuredPlan

EPILOG = epilog(
    ("netsum allreduce", "four processes of this machine over an embedded switch"),
    (
        "netsum allreduce --workers 8 --lanes 64 --drop-percent 1",
        "eight, with 1 % of the packets lost each way",
    ),
    ("netsum allreduce --testbed star-4 --sizes 64MiB", "between all hosts of a testbed"),
    ("netsum allreduce -b 1K -e 16M -f 4 --dtypes float32", "a sweep of sizes, as nccl-tests has it"),
    (
        "NETSUM_CONTROLLER=10.0.0.9:28276 netsum allreduce --job test --rank 0 --world-size 2",
        "one rank, on its own host; the other is started elsewhere",
    ),
    ("netsum allreduce --json | jq '.results[] | {bytes, rate: .elements_per_s.median}'", "for a script"),
    ok="all sums were right, bit for bit, at all ranks",
    fault="one was not, or the all-reduce could not be done; standard error says why",
)

FAILED_RUNS = "runs"


def allreduce(
    sizes: Annotated[
        str, typer.Option(metavar="SIZES", help="Sizes of the array at each rank, in bytes, KiB, MiB or GiB.")
    ] = "4KiB,256KiB,16MiB",
    dtypes: Annotated[
        str, typer.Option(metavar="TYPES", help="float32, float64, float16, int32, int64.")
    ] = "float32,int32",
    op: Annotated[str, typer.Option(help="sum, min, max; bor of int32 and int64.")] = "sum",
    sparse: Annotated[
        Sparse, typer.Option(help="Leave out blocks that are zero at every rank; auto: from 1 MiB on.")
    ] = "auto",
    bits: Annotated[
        Bits, typer.Option(help="Bits of an element on the wire, for sums of float32 and float16.")
    ] = "full",
    rounding: Annotated[Rounding, typer.Option(help="Rounding to few bits.")] = "nearest",
    density: Annotated[
        float,
        typer.Option(
            min=0.0,
            max=100.0,
            metavar="PERCENT",
            help="Share of the blocks of a rank's array that are not zero.",
        ),
    ] = 100.0,
    overlap: Annotated[
        Overlap, typer.Option(help="Whether these are the same blocks at all ranks.")
    ] = "random",
    repeats: Annotated[int, typer.Option(min=1, help="How often each array is reduced and timed.")] = 3,
    warmups: Annotated[int, typer.Option(min=0, help="Repeats before that, checked and not timed.")] = 1,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the numbers; the same at all ranks.")] = 0,
    timeout: Annotated[
        float,
        typer.Option(
            min=0.1, metavar="SECONDS", help="An all-reduce fails if nothing of it completes in this time."
        ),
    ] = 60.0,
    smallest: Annotated[
        str | None,
        typer.Option("-b", "--minbytes", metavar="SIZE", help="Instead of --sizes: a sweep from this size."),
    ] = None,
    largest: Annotated[
        str | None, typer.Option("-e", "--maxbytes", metavar="SIZE", help="The largest size of the sweep.")
    ] = None,
    factor: Annotated[
        int,
        typer.Option("-f", "--stepfactor", min=2, help="How many times larger each size of the sweep is."),
    ] = 2,
    slots: SlotsOption = None,
    workers: Annotated[
        int | None, typer.Option(min=1, max=32, help="Processes on this machine, one a rank. Default: 4.")
    ] = None,
    lanes: Annotated[
        LocalLanes,
        typer.Option(help="On loopback: int32 values a packet carries. 256 and 64 are those of networks."),
    ] = "256",
    drop_percent: Annotated[
        float, typer.Option(min=0.0, max=50.0, help="On loopback: packets lost on purpose, each way.")
    ] = 0.0,
    testbed: Annotated[
        str | None, typer.Option(metavar="NAME", help="Between hosts of this testbed.")
    ] = None,
    hosts: Annotated[
        str, typer.Option(metavar="HOSTS", help="With --testbed: the hosts, such as h1,h2. Default: all.")
    ] = "",
    controller: Annotated[
        str | None,
        typer.Option(
            metavar="HOST:PORT",
            envvar="NETSUM_CONTROLLER",
            help="Join through this controller; also unix:PATH.",
        ),
    ] = None,
    job: Annotated[
        str | None,
        typer.Option(metavar="NAME", callback=check_new_name, help="Name of the job. With --rank: required."),
    ] = None,
    rank: Annotated[
        int | None, typer.Option(min=0, help="Be this one rank; the others run elsewhere.")
    ] = None,
    world_size: Annotated[
        int | None, typer.Option(min=1, max=32, help="With --rank: the number of ranks.")
    ] = None,
    join_token: JoinTokenOption = "",
    join_timeout: Annotated[
        float,
        typer.Option(min=0.1, metavar="SECONDS", help="With --rank: how long to wait for the other ranks."),
    ] = 120.0,
    as_json: AsJson = False,
) -> None:
    """Add arrays between hosts, check every sum bit for bit, and say how fast it went.

    Without a controller, a switch and ranks are started on this machine's loopback, and gone afterwards. With `--testbed`, a rank
    runs on each host of a testbed. With a controller, `--workers` ranks of this machine join a job through it; or this process is
    one rank of many, on whichever hosts: `--rank`, `--world-size` and `--job`.

    Columns are those of nccl-tests: `algbw` is the size of one rank's array over the median time, `busbw` that times
    2(n − 1)/n for n ranks. Times are until the last rank has its result.

    `union` is the share of the array's blocks that travelled, where blocks of zeros were left out. The numbers come out of the
    seed, so every rank knows what must come out; they are chosen so that no sum is rounded. With `--bits`, sums are right if they
    are within the bound of their error.
    `--json` prints one document; with `--rank`, a line for each round.
    """
    from netsum.allreduce.plan import Plan, size_sweep

    if (smallest is None) != (largest is None):
        raise UsageError("a sweep of sizes needs both --minbytes and --maxbytes")
    if smallest is not None and largest is not None:
        sizes = size_sweep(smallest, largest, factor)
    plan = Plan.of(
        sizes,
        dtypes,
        op,
        repeats=repeats,
        warmups=warmups,
        seed=seed,
        timeout_s=timeout,
        sparse=sparse,
        bits=bits if bits == "full" else int(bits),
        rounding=rounding,
        density=density / 100,
        overlap=overlap,
    )
    if rank is not None:
        if job is None or world_size is None or controller is None:
            raise UsageError(
                "a single --rank also needs --job, --world-size and --controller (or NETSUM_CONTROLLER)"
            )
        if workers is not None or testbed is not None:
            raise UsageError("--rank is one rank alone: leave out --workers and --testbed")
        if not _one_rank(plan, job, rank, world_size, controller, slots, join_token, join_timeout, as_json):
            raise typer.Exit(1)
        return
    if world_size is not None:
        raise UsageError("--world-size requires --rank; use --workers for ranks on this machine")
    if testbed is not None and workers is not None:
        raise UsageError("--workers cannot be used with --testbed: name the hosts with --hosts")
    if testbed is None and hosts:
        raise UsageError("--hosts are those of a --testbed: name it too")
    outcome = _all_ranks(
        plan,
        workers=workers or 4,
        lanes=int(lanes),
        drop_percent=drop_percent,
        testbed=testbed,
        hosts=[host.strip() for host in hosts.split(",") if host.strip()],
        controller=controller,
        job=job,
        slots=slots,
        join_token=join_token,
        quiet=as_json,
    )
    _print_outcome(outcome, as_json)
    if not outcome.correct:
        raise typer.Exit(1)


def _all_ranks(
    plan: "Plan",
    *,
    workers: int,
    lanes: int,
    drop_percent: float,
    testbed: str | None,
    hosts: list[str],
    controller: str | None,
    job: str | None,
    slots: str | None,
    join_token: str,
    quiet: bool,
) -> "MeasuredPlan":
    """Run all ranks, wherever they are, and show how far they are."""
    from contextlib import ExitStack
    from pathlib import Path

    from netsum.allreduce.session import local_sites, loopback_controller, run_between, testbed_sites
    from netsum.cli.controller_choice import choose_controller
    from netsum.compiling import await_compiled, compiling
    from topologies.run_folder import find_testbed
    from topologies.runs import run_folder

    sites = local_sites(workers) if testbed is None else testbed_sites(find_testbed(testbed), hosts)
    with ExitStack() as stack:
        folder = stack.enter_context(run_folder(keep_on_error=Path(FAILED_RUNS)))
        compiler = stack.enter_context(compiling(folder))  # Here, lest every rank does.
        if testbed is not None or controller is not None:
            address = choose_controller(controller, testbed).address
        else:
            address = stack.enter_context(
                loopback_controller(workers, lanes, round(drop_percent * 10_000), folder)
            )
        with _waiting("compiling the worker's machine code, once after an installation", quiet):
            await_compiled(compiler)
        on_message = stack.enter_context(
            _progress(len(sites) * len(plan.exchanges) * (plan.warmups + plan.repeats), quiet)
        )
        return run_between(
            plan,
            sites,
            controller=address,
            folder=folder,
            job=job,
            slots=slots,
            join_token=join_token,
            on_message=on_message,
        )


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


def _one_rank(
    plan: "Plan",
    job: str,
    rank: int,
    world_size: int,
    controller: str,
    slots: str | None,
    join_token: str,
    join_timeout: float,
    as_json: bool,
) -> bool:
    from host_agent.words import plural
    from netsum.allreduce.plan import size_text
    from netsum.allreduce.worker import take_part
    from netsum.option_values import parse_slots
    from netsum.terminal import count_text, echo, print_json_line

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

    return take_part(
        plan,
        job=job,
        rank=rank,
        world_size=world_size,
        controller=controller,
        slots=parse_slots(slots),
        join_token=join_token,
        join_timeout_s=join_timeout,
        echo=print_json_line if as_json else print_round,
    )
