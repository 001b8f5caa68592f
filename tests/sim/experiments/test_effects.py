"""Settings that change nothing are refused, and those that are accepted change something."""

import copy
import json
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args

import pytest

from sim.errors import SettingError
from sim.experiments import experiment
from sim.experiments.effects import RULES, Effects
from sim.experiments.experiment import Point, parse_experiment
from sim.experiments.running import PointFailedError, Watch, run_point
from sim.experiments.scenario import build
from tests.sim.experiments.random_files import LAYERS, MODEL

Tables = dict[str, Any]
"""An experiment's file, as TOML is read."""

RING: Tables = {"job": {"contender": "ring", "size": "64KiB"}}
LOSSY: Tables = {**RING, "fault": {"loss": "5%"}}
SHORT: Tables = {"job": {"timeout": "5ms"}}
PODS: Tables = {"topology": {"kind": "pods", "rack": 2}}
LEAVES: Tables = {"topology": {"kind": "leaf-spine"}}
DUMBBELL: Tables = {"topology": {"kind": "dumbbell"}}
TRACE: Tables = {"job": {"workload": "layers.txt"}}
TRAINED: Tables = {"job": {"model": "model.json"}}
GIVEN: Tables = {"host": {"cost": "given"}}
KILLED: Tables = {**SHORT, "event": {"at": "2us", "action": "kill-worker"}}
AWAY: Tables = {"event": {"at": "1us", "action": "controller-away"}}
DOWN: Tables = {**SHORT, "event": {"at": "1us", "action": "switch-down"}}
CROSS: Tables = {"background": {"source": "h2", "target": "h1", "rate": "5gbit"}}

FLOW: Tables = {"background": {"source": "h2", "target": "h1", "flow": "cubic"}}

CASES: list[tuple[str, Any, Tables, Tables]] = [
    ("topology.file", "star-4", {}, {"topology": {"kind": "file"}}),
    ("topology.hosts", 8, {"topology": {"kind": "fat-tree"}}, {}),
    ("topology.hosts", 16, {"topology": {"kind": "pods", "rack": 2, "pods": 1}}, PODS),
    ("topology.leaves", 2, {}, LEAVES),
    ("topology.leaves", 2, {"topology": {"kind": "leaf-spine", "rack": 4}}, PODS),
    ("topology.spines", 3, DUMBBELL, LEAVES),
    ("topology.rack", 3, DUMBBELL, LEAVES),
    ("topology.pods", 3, LEAVES, PODS),
    ("topology.cores", 2, LEAVES, PODS),
    ("topology.ports", 6, LEAVES, {"topology": {"kind": "fat-tree"}}),
    ("topology.core_rate", "1gbit", {}, DUMBBELL),
    ("topology.mtu", 9000, {"topology": {"kind": "file", "file": "star-4"}}, {}),
    ("topology.mark", "1kB", {}, RING),
    ("switch.queue_pkts", 1, {}, {"switch": {"service": 500}}),
    ("controller.delay", "1ms", RING, {}),
    ("host.send", 100, {"host": {"cost": "measured"}}, GIVEN),
    ("host.receive", 100, {}, GIVEN),
    ("host.byte", 1, {}, GIVEN),
    ("job.apart", True, {}, {"job": {"copies": 2}}),
    ("job.size", "8KiB", TRACE, {}),
    ("job.size", "8KiB", TRAINED, RING),
    ("job.model", "model.json", TRACE, {}),
    ("job.compute", "1ms", TRAINED, {}),
    ("job.batch", 2, {}, TRAINED),
    ("job.bucket", "100kB", {}, TRAINED),
    ("job.simulated_lanes", 64, RING, {"job": {"lanes": 256}}),
    ("job.slots", 1, RING, {}),
    ("job.sparse", "always", {"job": {"quorum": 3}}, {}),
    ("job.switch", "s2", {**DUMBBELL, "job": {"tree": True}}, DUMBBELL),
    ("job.tree", True, RING, DUMBBELL),
    ("job.quorum", 3, RING, {"job": {"straggler": 1, "late": "1ms"}}),
    ("job.timeout", "5ms", RING, {"event": KILLED["event"]}),
    ("job.straggler", 1, {}, {"job": {"late": "1ms"}}),
    ("job.late", "1ms", {}, {"job": {"straggler": 1}}),
    ("job.slower", 100, {"job": {"straggler": 1}}, {"job": {"straggler": 1, "compute": "1us"}}),
    ("job.servers", 2, RING, {"job": {"contender": "ps"}}),
    ("job.density", 0.1, RING, {"job": {"sparse": "always", "size": "64KiB"}}),
    ("fault.loss", "5%", {"fault": [{}, {"loss": 0}]}, {"fault": [{}, {"duplicate": "1%"}]}),
    (
        "fault.duplicate",
        "50%",
        {"fault": [{}, {"duplicate": 0}]},
        {"fault": [{}, {"links": "h1>*", "duplicate": 0}]},
    ),
    ("fault.jitter", "9us", {"fault": [{"links": "h1>s1"}, {"jitter": "1us"}]}, {"fault": [{}, {"loss": 0}]}),
    ("fault.straggle", "50%", {}, {"fault": {"straggle_by": "1ms"}}),
    (
        "fault.straggle",
        "50%",
        {"fault": [{"straggle_by": "1ms"}, {"straggle": 0}]},
        {"fault": {"straggle_by": "1ms"}},
    ),
    ("fault.straggle_by", "1ms", {"fault": {"loss": "1%"}}, {"fault": {"straggle": "50%"}}),
    ("fault.to_bad", "50%", {"fault": [{}, {"to_bad": 0}]}, {}),
    ("fault.to_good", 0.5, {"fault": {"loss": "1%"}}, {"fault": {"to_bad": 0.5}}),
    ("fault.loss_bad", 0.5, {"fault": {"loss": "1%"}}, {"fault": {"to_bad": 0.5}}),
    ("fault.links", "h1>s1", {}, {"fault": {"loss": "10%"}}),
    ("script.nth", 2, RING, {}),
    ("script.action", "delay", {"script": {}}, {"script": {"delay": "9us"}}),
    ("script.delay", "9us", {"script": {}}, {"script": {"action": "delay"}}),
    (
        "event.at",
        "5ms",
        {"event": {"action": "switch-down"}, "run": {"limit": "1ms"}},
        {**SHORT, "event": {"action": "switch-down"}},
    ),
    ("event.action", "switch-down", {**RING, "event": {"at": "1us"}}, {**SHORT, "event": {"at": "1us"}}),
    (
        "event.action",
        "controller-back",
        {"event": {"at": "1us"}},
        {"event": [{"at": "1ms"}, AWAY["event"] | {"at": "0us"}]},
    ),
    ("event.action", "switch-up", {"event": {"at": "1us"}}, {"event": [{"at": "1ms"}, DOWN["event"]]}),
    ("event.links", "h1>s1", DOWN, {**SHORT, "event": {"at": "1us", "action": "link-down"}}),
    ("event.switch", "s2", {**DUMBBELL, **AWAY}, {**DUMBBELL, **DOWN}),
    ("event.job", "job2", AWAY, {"job": {"copies": 2, "timeout": "5ms"}, "event": KILLED["event"]}),
    ("event.worker", 1, AWAY, KILLED),
    ("background.start", "1ms", {"background": CROSS["background"] | {"stop": "1us"}}, CROSS),
    ("background.start", "1ms", {**CROSS, "run": {"limit": "1us"}}, CROSS),
    ("background.packet", 500, FLOW, CROSS),
    ("background.burst", 5, FLOW, CROSS),
    ("background.gaps", "poisson", FLOW, CROSS),
    ("transport.segment", 500, {}, RING),
    ("transport.headers", 10, {}, RING),
    ("transport.window", 1, {}, RING),
    ("transport.ack_every", 1, {}, RING),
    ("transport.initial", 1, {}, RING),
    ("transport.least_rto", "1us", {}, LOSSY),
    ("transport.pieces", 1, {}, RING),
    ("run.check", False, RING, {}),
    ("run.fast_forward", False, RING, {}),
]
"""A setting, tables with which it changes nothing, and with which it does."""
LISTS = ("fault", "script", "event", "background")
ALIKE = ("run.fast_forward", "job.simulated_lanes")
"""Settings that change how long a run takes, and nothing of its results."""
REQUIRED = ("topology.file", "script.action", "event.at", "event.action", "event.links", "background.start")
"""Settings without which the others of a case say nothing, or something else."""


def file(tables: Tables, key: str = "", value: Any = None) -> Tables:
    """Return a file of a job with these tables, and a setting in the first of its tables."""
    found = copy.deepcopy(tables)
    found["job"] = [{"size": "4KiB", "lanes": 64, **found.get("job", {})}]
    for name in LISTS:
        found[name] = found.get(name, []) if isinstance(found.get(name, []), list) else [found[name]]
    if key:
        table, _, name = key.partition(".")
        where = found.setdefault(table, {})
        if isinstance(where, list):
            if not where:
                where.append({})
            where = where[0]
        where[name] = value
    if found["job"][0].keys() & {"model", "workload"} and key != "job.size":
        del found["job"][0]["size"]
    return found


def outcome(tables: Tables, programs: dict[int, str]) -> tuple[str, str]:
    """Return the report of a file's run, and its scenario."""
    (point,) = parsed(tables)
    watch = Watch()
    try:
        result: Any = run_point(point, programs, watch)
        found = [
            result.rows,
            result.series,
            {job: list(map(vars, each)) for job, each in result.limits.items()},
        ]
    except PointFailedError as error:
        found = [str(error)]
    assert watch.scenario is not None
    return json.dumps(found), f"{watch.scenario.topology} {watch.scenario.network.link_parameters}"


def parsed(tables: Tables) -> tuple[Point, ...]:
    return experiment._parse(copy.deepcopy(tables), "", "x").points


@pytest.fixture
def _files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a model and a trace lie in the present folder."""
    (tmp_path / "model.json").write_text(json.dumps(MODEL))
    (tmp_path / "layers.txt").write_text(LAYERS)
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(("key", "value", "idle", "used"), CASES)
@pytest.mark.usefixtures("_files")
def test_what_is_refused_changes_nothing_and_what_is_not_does(
    key: str,
    value: Any,
    idle: Tables,
    used: Tables,
    programs: dict[int, str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table, _, name = key.partition(".")
    with pytest.raises(SettingError, match=rf"^{table}(\[0\])?(\.{name})? has no effect here: it needs "):
        parsed(file(idle, key, value))
    parsed(file(used, key, value))
    monkeypatch.setattr(Effects, "check", lambda effects: None)
    if key not in REQUIRED:
        assert outcome(file(idle, key, value), programs)[0] == outcome(file(idle), programs)[0]
        same = outcome(file(used, key, value), programs) == outcome(file(used), programs)
        assert same == (key in ALIKE)


def test_every_rule_has_an_example_and_is_of_a_setting_that_there_is() -> None:
    known = {
        f"{table}.{each.name}"
        for table, hint in experiment._HINTS.items()
        for each in fields((*get_args(hint), hint)[0])
    }
    assert {rule for rule in RULES if "." in rule} <= known
    shown = {key for key, *_ in CASES}
    assert {rule for rule in RULES if "." in rule} <= shown
    assert {rule for rule in RULES if "." not in rule} <= {key.partition(".")[0] for key in shown}


def test_a_setting_must_have_an_effect_at_one_of_the_points_alone() -> None:
    text = '[[job]]\nslots = 8\n[sweep]\n"job.contender" = ["ring", "netsum"]\n'
    assert len(parse_experiment(text, "x").points) == 2
    with pytest.raises(
        SettingError, match=r"^job\[0\].slots has no effect here: it needs contender = netsum"
    ):
        parse_experiment(text.replace("netsum", "tree"), "x")
    with pytest.raises(SettingError, match=r"^job.slots has no effect here"):
        parse_experiment('[[job]]\ncontender = "ring"\n[sweep]\n"job.slots" = [8, 16]\n', "x")


def test_a_value_in_place_of_the_files_may_leave_others_without_effect_but_must_have_one() -> None:
    text = "[[job]]\nslots = 8\n"
    assert parse_experiment(text, "x", {"job.contender": "ring"}).points
    with pytest.raises(SettingError, match=r"^job.servers has no effect here: it needs contender = ps or "):
        parse_experiment(text, "x", {"job.servers": 2})


def test_a_later_fault_of_a_link_leaves_the_earlier_ones_others(programs: dict[int, str]) -> None:
    faults = [{"loss": "1%", "jitter": "1us"}, {"links": "h1>s1", "jitter": "5us", "to_bad": "1%"}]
    (point,) = parsed(file({"fault": faults}))
    network = build(point, programs).network
    one, other = (network.link_parameters[network.link_numbers[name]].faults for name in ("h1>s1", "s1>h1"))
    assert (one.loss, one.jitter_ns, one.bursts is None) == (0.01, 5000, False)
    assert (other.loss, other.jitter_ns, other.bursts is None) == (0.01, 1000, True)
