"""A job's tree of switches as lines of text."""

from collections import defaultdict

from host_agent.job_api.jobs_pb2 import JobView, TreeSwitchView
from host_agent.words import plural

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
