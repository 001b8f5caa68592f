"""`netsum job`: the jobs of a controller."""

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from netsum.cli import completions
from netsum.cli.clients import as_changing_operator, as_operator
from netsum.cli.parameters import Commands
from netsum.cli.texts import epilog
from netsum.command_errors import UsageError
from netsum.options import join_token_option, json_option, slots_option
from netsum_common.names import check_name
from netsum_common.options import REQUIRED, argument, option

if TYPE_CHECKING:
    from controller.service.client import OperatorClient
    from host_agent.job_api.jobs_pb2 import JobView

job_app = Commands()

JOB = argument("The job.", metavar="NAME", complete=completions.jobs)


@dataclass(frozen=True, kw_only=True)
class NewJob:
    """Options of a new job."""

    name: str = argument("Name of the job.", metavar="NAME", read=check_name)
    world_size: int = option("Number of workers.", REQUIRED, within=(1, 4096))
    slots: str | None = slots_option()
    if_full: Literal["refuse", "queue", "take-less"] = option(
        "If that many slots are not free: refuse the job, wait for them, or take the largest free power of two.",
        "refuse",
    )
    queue: float = option(
        "With queue: longest wait; 0: no limit.", 0.0, within=(0.0, None), metavar="SECONDS"
    )
    switch: str = option("Switch that adds. Default: the first.", "", metavar="NAME")
    on: Literal["host"] | None = option("An aggregator on a host adds, not a switch of the network.")
    weight: float = option(
        "Weight of this job where jobs share slots by weight; 0: the default, 1.", 1.0, within=(0.0, None)
    )
    quorum: int = option(
        "Number of workers whose arrays complete a round, those that are ready first; 0: no quorum.",
        0, within=(0, 32), metavar="WORKERS",
    )  # fmt: skip
    join_token: str = join_token_option()
    idle: float = option(
        "End it if no worker joins in this time; 0: the controller's default.",
        0.0, within=(0.0, None), metavar="SECONDS",
    )  # fmt: skip
    as_json: bool = json_option()


def _check_quorum(new: NewJob) -> None:
    """Refuse a quorum of more workers than the job has."""
    from host_agent.job_api.job_request import JobRequest

    try:
        JobRequest("", new.world_size, quorum=new.quorum).check()
    except ValueError as expected:
        raise UsageError(f"--quorum: {expected}") from None


@job_app.callback()
def job_group() -> None:
    """Create, show, watch, restart and delete the jobs of a controller."""


@job_app.command(
    "create",
    epilog=epilog(
        "netsum job create train --world-size 8  # eight workers then join by this name; 64 slots are held for them",
        "netsum job create train --world-size 8 --slots 10gbit*20us  # as many slots as fill such a link",
        "netsum job create train --world-size 8 --slots 50% --if-full queue --queue 600  # wait for them ten minutes",
        "netsum job create train --world-size 8 --quorum 7"
        "  # rounds of the job do not wait for the slowest worker (docs/protocol.md, Quorums)",
        ok="the job is there, or queued",
    ),
)
@functools.partial(as_operator, changes=True, check=_check_quorum)
def create(client: "OperatorClient", new: NewJob) -> None:
    """Create a job, which workers then join by its name.

    Its slots are reserved from now on. Workers can also join a job that has not been created: the first one creates it.
    """
    from netsum.option_values import parse_slots

    view = client.create_job(
        new.name,
        new.world_size,
        slots=parse_slots(new.slots),
        if_full="take less" if new.if_full == "take-less" else new.if_full,
        queue_s=new.queue,
        switch=new.switch,
        join_token=new.join_token,
        idle_s=new.idle,
        weight=new.weight,
        quorum=new.quorum,
        on_host=new.on == "host",
    )
    _print_job(view, new.as_json)


@job_app.command(
    "list",
    epilog=epilog(
        "netsum job list  # the jobs that have not ended",
        "netsum job list --json | jq -r '.[] | select(.state == \"running\") | .name'  # names of those that run",
    ),
)
@as_operator
def list_jobs(
    client: "OperatorClient",
    ended: bool = option("Include jobs that ended recently.", False, "--ended"),
    as_json: bool = json_option(),
) -> None:
    """List the jobs of a controller."""
    from controller.service.client import as_dict
    from netsum.cli.watching import job_state, state_word
    from netsum.terminal import echo, print_table

    views = client.jobs(ended)
    if not views and not as_json:
        echo("no jobs: workers make one when they join, or an operator by `netsum job create`")
        return
    rows = []
    for view in views:
        there = sum(state_word(worker) == "seated" for worker in view.workers)
        counts = map(str, (view.slot_count, view.lanes, view.restarts, view.moves))
        waited = f"{view.waited_s:.1f}" if view.waited_s >= 0.05 else "0"
        names = (view.name, job_state(view), f"{there} of {view.world_size}", view.switch)
        rows.append((*names, *counts, waited, view.reason))
    headings = ("~job", "state", ">workers", "switch", ">slots", ">lanes", ">?restarts", ">?moves")
    print_table(as_json, map(as_dict, views), (*headings, ">?waited s", "~reason"), rows)
    share, jain = ("", 0.0) if as_json else client.share()
    if share:
        echo(f"slots are shared ({share}): Jain's index {jain:.3f}")


@job_app.command(
    "show",
    epilog=epilog(
        "netsum job show train  # its state, its workers, and what the switch counted for it",
        "netsum job show train --json | jq .counters  # what the switch counted",
    ),
)
@as_operator
def show(client: "OperatorClient", name: str = JOB, as_json: bool = json_option()) -> None:
    """Show a job: its state, its workers, and the switch's counters for it."""
    view = client.job(name)
    _print_job(view, as_json)


@job_app.command(
    "restart",
    epilog=epilog(
        "netsum job restart train  # start again: stuck workers resume, workers that left may rejoin",
        ok="no packet of the job's earlier life counts any more",
    ),
)
@as_changing_operator
def restart(client: "OperatorClient", name: str = JOB, as_json: bool = json_option()) -> None:
    """Give a job a new epoch and token: collectives in flight fail at all workers, which then start again."""
    view = client.restart_job(name)
    _print_job(view, as_json)


@job_app.command(
    "delete",
    epilog=epilog(
        "netsum job delete train  # its workers get an error; its slots are free afterwards",
        ok="the job has ended",
    ),
)
@as_changing_operator
def delete(client: "OperatorClient", name: str = JOB, as_json: bool = json_option()) -> None:
    """End a job and free its slots."""
    from netsum.terminal import echo, print_json

    client.delete_job(name)
    if as_json:
        print_json({"name": name, "state": "ended"})
    else:
        echo(f"the job {name} has ended")


@job_app.command(
    "watch",
    epilog=epilog(
        "netsum job watch train  # a live view until the job ends",
        "netsum job watch train --interval 0.5 --json | jq -c '{elements_per_s, stuck: [.workers[].report.stuck]}'"
        "  # a line an interval",
        ok="the job has ended",
        interrupted="Ctrl-C; the job goes on",
    ),
)
@as_operator
def watch(
    client: "OperatorClient",
    name: str = JOB,
    interval: float = option("Seconds between views.", 1.0, within=(0.1, 3600.0), metavar="SECONDS"),
    views: int = option("End after this many views; 0: when the job ends.", 0, within=(0, None)),
    as_json: bool = json_option("One JSON document a line, for scripts."),
) -> None:
    """Watch a job live: each worker's contributions, stale and retransmitted packets, rates, and who is missing in a stuck slot.

    "Admitted" counts the packets that the switch took from each worker; chunks and retransmissions are reported by the workers;
    the last line has the switch's counters for the job. A slot is stuck when its oldest contribution waits for other workers; the
    workers whose contributions are missing are named.
    """
    from netsum.cli.watching import watch_job

    watch_job(client, name, interval_s=interval, most=views, as_json=as_json)


@job_app.command(
    "events",
    epilog=epilog(
        "netsum job events train  # each change of the job, its workers and the connections to switches, with its reason",
        "netsum job events train --json | jq -r '.[] | select(.event == \"restart\") | .reason'  # why it was restarted",
    ),
)
@as_operator
def events(client: "OperatorClient", name: str = JOB, as_json: bool = json_option()) -> None:
    """Show a job's events: changes of its state and its workers, and meanwhile of connections to switches.

    The controller keeps the last 10,000 changes of all jobs, also when it is started again; jobs that have ended are among them.
    """
    from controller.service.client import as_dict
    from netsum.cli.watching import event_cells
    from netsum.terminal import print_table

    found = client.job_events(name)
    headings = ("time", "of", "event", "state", "~reason")
    print_table(as_json, map(as_dict, found), headings, map(event_cells, found), key=3)


def _print_job(view: "JobView", as_json: bool) -> None:
    from controller.service.client import as_dict
    from host_agent.words import plural
    from netsum.cli.watching import (
        job_state,
        last_sentence,
        sparse_sentence,
        state_word,
        stuck_sentences,
        tree_lines,
    )
    from netsum.terminal import ProgressRows, echo, print_facts, print_json

    if as_json:
        print_json(as_dict(view))
        return
    import datetime

    last = view.slot_base + view.slot_count - 1
    slots = f"{view.slot_count}, numbers {view.slot_base} to {last}" if view.slot_count else "none yet"
    made_at = datetime.datetime.fromtimestamp(view.created).astimezone()
    print_facts(
        [
            ("job", f"{view.name}, id {view.job_id}" if view.job_id else view.name),
            ("state", job_state(view) + (f": {view.reason}" if view.reason else "")),
            ("switch", view.switch + (", the root of a tree" if view.tree else "")),
            ("slots", slots + (f"; {view.lanes} lanes a packet" if view.lanes else "")),
            ("quorum", f"{view.quorum} of {plural(view.world_size, 'worker')}" if view.quorum else ""),
            ("epoch", f"{view.epoch}, {plural(view.restarts, 'restart')}" if view.epoch else ""),
            ("created", made_at.isoformat(sep=" ", timespec="seconds")),
        ]
    )
    workers = ProgressRows(
        *(">rank", "state", "host", "?address", ">switch\nport"),
        *(">admitted", ">chunks", ">retrans-\nmissions", ">last\nreport"),
        key=3,
    )
    for worker in view.workers:
        reported = worker.HasField("report")
        workers.add(
            str(worker.rank),
            state_word(worker),
            worker.host,
            f"{worker.ip}:{worker.udp_port}" if worker.ip else "",
            str(worker.switch_port) if worker.ip else "",
            f"{worker.admitted:,}" if worker.HasField("admitted") else "",
            f"{worker.report.chunks:,}" if reported else "",
            f"{worker.report.retransmissions:,}" if reported else "",
            f"{worker.seen_s:.1f} s ago" if reported else "",
        )
    workers.print()
    for line in tree_lines(view):
        echo(line)
    if sparse := sparse_sentence(view):
        echo(sparse)
    if slow := last_sentence(view):
        echo(slow)
    for sentence in stuck_sentences(view):
        echo(f"stuck: {sentence}")
    if view.epoch:  # Before its first one the switch has counted nothing for it.
        counted = sorted(view.counters.items())
        print_facts((f"switch counted {name.replace('_', ' ')}", f"{count:,}") for name, count in counted)
