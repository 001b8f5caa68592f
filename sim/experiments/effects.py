"""Rules of where a setting has an effect. One that has none at any point of its experiment is refused."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import fields
from typing import Any, Final

from host_agent.environment import CONGESTION_WINDOW, is_on
from sim.errors import SettingError
from sim.experiments.settings import Settings, TransportTable
from sim.peers.table import SERVED
from topologies.generated import KINDS

Rule = tuple[Callable[[Settings, Any], object], str]
"""Whether a setting has an effect, given all settings and its table, and a text of its requirement."""


def _kinds(*kinds: str) -> Rule:
    return lambda _, topology: topology.kind in kinds, f"kind = {' or '.join(kinds)}"


def _has_netsum(settings: Settings, _: object) -> bool:
    return any(job.contender == "netsum" for job in settings.job)


def _has_flows(settings: Settings, _: object) -> bool:
    return any(job.contender != "netsum" or job.workload for job in settings.job)


def _computes(settings: Settings, job: Any) -> bool:
    return bool(job.compute or job.model or job.workload or settings.host.cost != "ideal")


def _last(name: str) -> Rule:
    """Return the rule of a fault: it is not replaced by a later table for the same links."""

    def is_last(settings: Settings, fault: Any) -> bool:
        at = next(at for at, each in enumerate(settings.fault) if each is fault)
        later = [each.links for each in settings.fault[at + 1 :] if getattr(each, name) is not None]
        return fault.links not in later and "*" not in later

    return is_last, f"no later [[fault]] that sets {name} for the same links"


def _undoes(settings: Settings, event: Any) -> bool:
    """Whether an event is the first of its pair, or comes after that."""
    opposite = {
        "link-up": "link-down",
        "switch-up": "switch-down",
        "controller-back": "controller-away",
        "resume-worker": "pause-worker",
    }.get(event.action)
    return opposite is None or any(
        each.action == opposite and each.at <= event.at and each.worker == event.worker
        for each in settings.event
    )


_NETSUM: Final[Rule] = (_has_netsum, "a job of netsum")
_FLOWS: Final[Rule] = (_has_flows, "a job of another contender, or with a workload")
_OF_NETSUM: Final[Rule] = (lambda _, job: job.contender == "netsum", "contender = netsum")
_PLAIN: Final[Rule] = (lambda _, job: not job.model and not job.workload, "no model and no workload")
_GIVEN: Final[Rule] = (lambda _, host: host.cost == "given", "cost = given")
_BURSTS: Final[Rule] = (lambda _, fault: fault.to_bad, "to_bad")
_OF_A_WORKER: Final[Rule] = (
    lambda _, event: event.action.endswith("-worker"),
    "kill-worker, pause-worker or resume-worker",
)

RULES: Final[dict[str, Rule]] = {
    **{
        f"topology.{key}": _kinds(*(name for name, kind in KINDS.items() if key in kind.keys))
        for key in sorted({key for kind in KINDS.values() for key in kind.keys})
    },
    "topology.file": _kinds("file"),
    "topology.hosts": (
        lambda _, topology: (
            topology.kind != "file" and not getattr(topology, KINDS[topology.kind].sized_by, 0)
        ),
        "a kind other than file and fat-tree, and no number of pods",
    ),
    "topology.leaves": (
        lambda _, topology: topology.kind == "pods" or (topology.kind == "leaf-spine" and not topology.rack),
        "kind = pods, or leaf-spine without rack",
    ),
    "topology.core_rate": _kinds(*(kind for kind in KINDS if kind != "star")),
    "topology.mtu": _kinds(*KINDS),
    "topology.mark": (
        lambda settings, table: (
            _has_flows(settings, table)
            or is_on(CONGESTION_WINDOW)
            or any(flow.flow for flow in settings.background)
        ),
        "a job of another contender, a flow, or a congestion window",
    ),
    "switch.queue_pkts": (lambda _, switch: switch.service, "service"),
    "controller.delay": _NETSUM,
    **dict.fromkeys(("host.send", "host.receive", "host.byte"), _GIVEN),
    "job.apart": (lambda _, job: job.copies > 1, "copies"),
    "job.size": _PLAIN,
    "job.model": (lambda _, job: not job.workload, "no workload"),
    "job.compute": _PLAIN,
    "job.batch": (lambda _, job: job.model or job.workload, "model or workload"),
    "job.bucket": (lambda _, job: job.model and not job.quorum, "model, and no quorum"),
    **dict.fromkeys(("job.simulated_lanes", "job.slots", "job.tree", "job.timeout"), _OF_NETSUM),
    "job.sparse": (
        lambda _, job: job.contender == "netsum" and not job.quorum,
        "contender = netsum, and no quorum",
    ),
    "job.switch": (
        lambda _, job: job.contender == "netsum" and not job.tree,
        "contender = netsum, and no tree",
    ),
    "job.quorum": (
        lambda _, job: job.contender == "netsum" and not job.workload,
        "contender = netsum, and no workload",
    ),
    "job.straggler": (lambda _, job: job.late or job.slower != 1, "late or slower"),
    "job.late": (lambda _, job: job.straggler >= 0, "straggler"),
    "job.slower": (
        lambda settings, job: job.straggler >= 0 and _computes(settings, job),
        "straggler, and compute, model, workload or [host] cost",
    ),
    "job.servers": (lambda _, job: job.contender in SERVED, f"contender = {' or '.join(SERVED)}"),
    "job.density": (
        lambda _, job: job.contender in ("netsum", "omnireduce") and not job.quorum and not job.workload,
        "contender = netsum or omnireduce, no quorum and no workload",
    ),
    **{f"fault.{name}": _last(name) for name in ("loss", "duplicate", "jitter", "to_bad")},
    "fault.straggle": (
        lambda settings, fault: fault.straggle_by and _last("straggle")[0](settings, fault),
        f"straggle_by, and {_last('straggle')[1]}",
    ),
    "fault.straggle_by": (lambda _, fault: fault.straggle, "straggle"),
    **dict.fromkeys(("fault.to_good", "fault.loss_bad"), _BURSTS),
    "fault": (
        lambda _, fault: any(
            getattr(fault, name) is not None for name in ("loss", "duplicate", "jitter", "straggle", "to_bad")
        ),
        "loss, duplicate, jitter, straggle or to_bad",
    ),
    "script": _NETSUM,
    "script.action": (lambda _, script: script.delay, "delay"),
    "script.delay": (lambda _, script: script.action == "delay", "action = delay"),
    "event": (_undoes, "an earlier event that it ends"),
    "event.at": (lambda settings, event: event.at <= settings.run.limit, "a time up to [run] limit"),
    "event.action": (
        lambda settings, event: event.action.startswith("link-") or _has_netsum(settings, event),
        "a job of netsum",
    ),
    "event.links": (lambda _, event: event.action.startswith("link-"), "link-down or link-up"),
    "event.switch": (
        lambda _, event: event.action.startswith("switch-"),
        "switch-down, switch-up or switch-restart",
    ),
    "event.job": _OF_A_WORKER,
    "event.worker": _OF_A_WORKER,
    "background": (
        lambda settings, flow: flow.start < min(flow.stop, settings.run.limit + 1),
        "a start before its stop, and up to [run] limit",
    ),
    **dict.fromkeys(
        ("background.packet", "background.burst", "background.gaps"), (lambda _, flow: flow.rate, "rate")
    ),
    **dict.fromkeys((f"transport.{each.name}" for each in fields(TransportTable)), _FLOWS),
    **dict.fromkeys(("run.check", "run.fast_forward"), _NETSUM),
}
"""A setting that is not here has an effect everywhere; the name of a table alone stands for any of its tables."""


class Effects:
    """Looks at all points of an experiment for settings that have an effect at none.

    `sweep`: the keys that vary. `only`: those to add_table for, of values that replace the file's; None: all, and those that the
    file itself states.
    """

    def __init__(self, sweep: Collection[str], only: Collection[str] | None) -> None:
        self._sweep, self._only = sweep, only
        self._idle: dict[str, str] = {}  # Settings without effect so far, by place, and their needs.
        self._used: set[str] = set()

    def add_table(
        self, settings: Settings, name: str, at: int | None, found: Mapping[str, Any], table: Any
    ) -> None:
        """Take in a table of a point. `found`: its keys as written; `table`: the values read."""
        place = name if at is None else f"{name}[{at}]"
        if name in RULES and self._only is None:
            self._note(place, RULES[name], settings, table)
        for each in fields(table):
            rule = RULES.get(f"{name}.{each.name}")
            if rule is None or each.name not in found or getattr(table, each.name) == each.default:
                continue
            swept = {f"{name}.{each.name}", f"{name}.{at}.{each.name}"} & set(self._sweep)
            where = min(swept, default=f"{place}.{each.name}")
            if self._only is None or where in self._only:
                self._note(where, rule, settings, table)

    def _note(self, where: str, rule: Rule, settings: Settings, table: Any) -> None:
        if where not in self._used:
            if rule[0](settings, table):
                self._used.add(where)
            else:
                self._idle.setdefault(where, rule[1])

    def check(self) -> None:
        """Raise `SettingError` about the first setting that has an effect nowhere."""
        for where, needed in self._idle.items():
            if where not in self._used:
                raise SettingError(f"{where} has no effect here: it needs {needed}")
