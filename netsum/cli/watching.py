"""The live view of a job."""

import datetime
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from controller.service.client import OperatorClient, as_dict
from host_agent.job_api.jobs_pb2 import EventView, JobState, JobView, WorkerState, WorkerView
from host_agent.words import plural
from netsum.terminal import ProgressRows, console, count_text, print_json_line, visible

if TYPE_CHECKING:
    from rich.console import Group, RenderableType
from collections import defaultdict

from host_agent.job_api.jobs_pb2 import TreeSwitchView

COUNTERS = (
    "contributions",
    "results",
    "stale",
    "duplicates_answered",
    "duplicates_dropped",
    "mismatches",
    "not_admitted",
)
"""The switch's counters that are always shown; the others are shown when they are not 0."""


EVENTS_SHOWN = 5


def watch_job(client: OperatorClient, name: str, *, interval_s: float, most: int, as_json: bool) -> None:
    """Show a job until it ends, or `most` times if that is not 0: live, or as one JSON document a line."""
    views: Iterator[JobView] = islice(client.watch_job(name, interval_s), most or None)
    if as_json:
        for view in views:
            print_json_line(as_dict(view))
        return
    from rich.live import Live

    screen = console()
    if not screen.is_terminal:  # Nothing to draw over: one picture after the other.
        for view in views:
            screen.print(picture(view, client.job_events(name)))
        return
    with Live(console=screen, auto_refresh=False) as live:
        for view in views:
            live.update(picture(view, client.job_events(name)), refresh=True)


def event_cells(event: EventView) -> tuple[str, ...]:
    """Return a transition as a row: time, subject, event, state, reason."""
    at = datetime.datetime.fromtimestamp(event.at).astimezone().isoformat(sep=" ", timespec="milliseconds")
    of = (
        f"switch {event.switch}"
        if event.switch
        else f"worker {event.rank}"
        if event.HasField("rank")
        else "job"
    )
    return at, of, event.event, event.after, event.reason


def picture(view: JobView, events: Sequence[EventView] = ()) -> "Group":
    """Return the display of a job: its state and its last events."""
    from rich.console import Group
    from rich.text import Text

    reason = f": {view.reason}" if view.reason else ""
    head = f"{view.name}  {job_state(view)}{reason}  on {view.switch or 'no switch yet'}, {plural(view.slot_count, 'slot')}"
    if view.epoch:
        head += f", {view.lanes} lanes, epoch {view.epoch}, {plural(view.restarts, 'restart')}"
    rates = f"{count_text(view.elements_per_s)} elements/s, {count_text(view.contributions_per_s)} contributions/s, "
    rates += f"{count_text(view.results_per_s)} results/s"
    lines: list[RenderableType] = [
        Text(visible(head), style="bold"),
        Text(rates),
        _workers(view),
        *map(Text, tree_lines(view)),
        Text(_counted(view)),
    ]
    if sparse := sparse_sentence(view):
        lines.append(Text(sparse))
    if slow := last_sentence(view):
        lines.append(Text(slow))
    lines += [Text(f"stuck: {sentence}", style="red") for sentence in stuck_sentences(view)]
    lines += [Text(visible("  ".join(event_cells(event)))) for event in events[-EVENTS_SHOWN:]]
    return Group(*lines)


def sparse_sentence(view: JobView) -> str:
    """Return how many collectives left out zeros, and what that saved; empty if none did.

    Shares are means over the workers that have reported; all decide alike.
    """
    reports = [worker.report for worker in view.workers if worker.HasField("report")]
    blocks = sum(report.sparse_blocks for report in reports)
    if blocks == 0:
        return ""
    own = sum(report.own_blocks for report in reports) / blocks
    union = sum(report.union_blocks for report in reports) / blocks
    collectives = max(report.collectives for report in reports)
    sparse = max(report.sparse_collectives for report in reports)
    saved = sum(report.saved_bytes for report in reports)
    return (
        f"sparse: {sparse:,} of {plural(collectives, 'collective')}; not zero: {own:.2%} of a worker's blocks, "
        f"{union:.2%} of all workers'; {count_text(saved)}{'B' if saved >= 1e6 else ' bytes'} saved"
    )


def last_sentence(view: JobView) -> str:
    """Return which worker the others wait for; empty if they wait for none in particular."""
    if not view.HasField("last"):
        return ""
    last = view.last
    return (
        f"slow: worker {last.rank} was the last in {last.share:.0%} of {last.collectives:,} collectives, "
        f"by {last.late_ns / 1e6:.1f} ms at the median"
    )


def job_state(view: JobView) -> str:
    """Return a job's state as a word."""
    return str(JobState.Name(view.state)).lower().replace("_", " ")


def state_word(worker: WorkerView) -> str:
    """Return a worker's state as a word."""
    return str(WorkerState.Name(worker.state)).lower()


def stuck_sentences(view: JobView) -> list[str]:
    """Return a sentence for each slot that waits, with the missing workers."""
    said: dict[tuple[int, int], tuple[list[int], WorkerView]] = {}
    for worker in view.workers:
        if worker.HasField("report") and worker.report.HasField("stuck"):
            stuck = worker.report.stuck
            said.setdefault((stuck.slot, stuck.chunk), ([], worker))[0].append(worker.rank)
    sentences = []
    for (slot, chunk), (waiting, worker) in sorted(said.items()):
        stuck = worker.report.stuck
        if stuck.missing:
            why = f"{_ranks(stuck.missing)} {'has' if len(stuck.missing) == 1 else 'have'} not contributed"
        elif stuck.switch_answered:
            why = "all have contributed, the result does not arrive"
        else:
            why = "the switch does not answer"
        waits = "waits" if len(waiting) == 1 else "wait"
        sentences.append(
            f"slot {slot}, chunk {chunk}: {_ranks(waiting)} {waits} for {stuck.waiting_ns / 1e9:.1f} s, {why}"
        )
    return sentences


def _ranks(ranks: list[int]) -> str:
    return f"worker{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks))}"


def _workers(view: JobView) -> "RenderableType":
    shown = ProgressRows(
        *(">rank", "state", "host", ">?admitted", ">chunks", ">chunks/s", ">retrans-\nmissions", ">per s"),
        *(">?stale", ">in\nflight", ">?window", ">round\ntrip", "?link"),
        key=3,
    )
    for worker in view.workers:
        # Packets that the switch took from the worker, if its program counts them; the rest is the worker's report.
        admitted = f"{worker.admitted:,}" if worker.HasField("admitted") else ""
        row = [str(worker.rank), state_word(worker), worker.host, admitted, *[""] * 9]
        if worker.HasField("report"):
            report = worker.report
            row[4:] = [
                f"{report.chunks:,}",
                count_text(worker.chunks_per_s),
                f"{report.retransmissions:,}",
                count_text(worker.retransmissions_per_s),
                f"{report.stale:,}",
                str(report.in_flight),
                f"{report.window_bytes / 1000:,.0f} kB" if report.window_bytes else "",
                f"{report.srtt_ns / 1e6:.2f} ms",
                report.link,
            ]
        shown.add(*row)
    return shown


def _counted(view: JobView) -> str:
    if not view.counters:
        return "switch: does not answer"
    names = [
        *COUNTERS,
        *sorted(name for name, count in view.counters.items() if count and name not in COUNTERS),
    ]
    return "switch: " + ", ".join(f"{view.counters[name]:,} {name.replace('_', ' ')}" for name in names)


_AT_THE_ROOT = ("contributions", "results")
_BELOW = ("contributions", "passed_up", "results_taken")
_IF_ANY = ("duplicates_answered", "duplicates_dropped", "duplicates_passed_up", "stale", "mismatches")


def tree_lines(view: JobView) -> list[str]:
    """Draw a job's switches, each below its parent, with its workers and counters; nothing if one switch adds for it."""
    below: dict[str, list[TreeSwitchView]] = defaultdict(list)
    for one in view.tree:
        below[one.parent].append(one)

    def draw(one: TreeSwitchView, lead: str, rest: str) -> list[str]:
        lines = [f"{lead}{_described(one)}"]
        children = below[one.name]
        for child in children:
            last = child is children[-1]
            lines += draw(child, f"{rest}{'└─' if last else '├─'} ", f"{rest}{'   ' if last else '│  '}")
        return lines

    return [line for root in below[""] for line in draw(root, "", "")]


def _described(one: TreeSwitchView) -> str:
    ranks = f" ({plural(len(one.ranks), 'worker')}: {', '.join(map(str, one.ranks))})" if one.ranks else ""
    names = [*(_BELOW if one.parent else _AT_THE_ROOT), *(name for name in _IF_ANY if one.counters.get(name))]
    counted = ", ".join(f"{one.counters[name]:,} {name.replace('_', ' ')}" for name in names)
    return f"{one.name}{ranks}: {counted if one.counters else 'does not answer'}"
