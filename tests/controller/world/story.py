"""Stories: what happens around a controller, and when, chosen by a seed."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from controller.service.network import ControlledNetwork
from host_agent.job_api import jobs_pb2
from tests.controller.service_harness import fake_leaf_spine, fake_network

SLOTS = 4096


@dataclass(frozen=True)
class Step:
    """An event, at a time in seconds: the name of a method of `play.World`, and its arguments."""

    at: float
    kind: str
    values: tuple[Any, ...] = ()

    def __str__(self) -> str:
        return f"{self.kind} {', '.join(map(str, self.values))}".rstrip()


@dataclass(frozen=True)
class Setting:
    """The network, the service's options, and the pace of everything. Times are in seconds."""

    network: ControlledNetwork = field(default_factory=fake_network)
    options: Mapping[str, Any] = field(default_factory=dict)
    mixing: float = 0.0
    busy_s: float = 0.0
    stream_delays: tuple[float, ...] = (0.0001,)
    switch_delays: tuple[float, ...] = (0.0001,)
    loses: float = 0.0

    def __str__(self) -> str:
        pace = (
            f"messages take {self.stream_delays} s, switches {self.switch_delays} s and lose {self.loses:g}"
        )
        return f"switches {', '.join(self.network.switches)}; options {dict(self.options)}; {pace}; mixing {self.mixing:g}"


@dataclass(frozen=True)
class Story:
    """A seed, a setting, and the events that happen in it."""

    seed: str
    setting: Setting
    steps: tuple[Step, ...]

    def with_steps(self, steps: tuple[Step, ...]) -> "Story":
        return replace(self, steps=steps)

    def __str__(self) -> str:
        return "\n".join([str(self.setting), *(f"{step.at:9.3f} s  {step}" for step in self.steps)])


_PACES = ((0.0001,), (0.0001, 0.002), (0.0001, 0.05), (0.001, 0.2, 1.5))
_JOBS = ("one", "two", "three")


def story_of(seed: int | str) -> Story:
    """Return the story of a seed."""
    chance = Random(f"story {seed}")
    setting = Setting(
        network=chance.choice((fake_network, fake_network, _tree, _tree, _spines))(),
        options=chance.choice(_OPTIONS),
        mixing=chance.choice((0.0, 0.1, 1.0)),
        busy_s=chance.choice((0.0, 0.0001, 0.005)),
        stream_delays=chance.choice(_PACES),
        switch_delays=chance.choice(_PACES),
        loses=chance.choice((0.0, 0.0, 0.01, 0.05)),
    )
    kinds = [kind for kind, often in _OFTEN.items() if chance.random() < often[0]]
    weights = [_OFTEN[kind][1] for kind in kinds]
    steps: list[Step] = []
    now = 0.5
    for _ in range(chance.choice((10, 20, 40))):
        make = chance.choices(kinds, weights)[0] if steps else "join"
        steps.append(Step(round(now, 4), *_STEPS[make](chance)))
        now += chance.choice((0.0, 0.001, 0.01, 0.3, 1.0, 3.0, 8.0))
    return Story(str(seed), setting, tuple(steps))


def _tree() -> ControlledNetwork:
    return fake_leaf_spine((2, 2))


def _spines() -> ControlledNetwork:
    return fake_leaf_spine((2, 1), spines=2)


_OPTIONS: tuple[Mapping[str, Any], ...] = (
    {},
    {"slots": 512},
    {"share": "fair", "slots": SLOTS},
    {"share": "weighted", "slots": 256, "least_slots": 64},
    {"share": "fair", "slots": SLOTS, "least_slots": 256},
)


def _options(chance: Random) -> dict[str, Any]:
    options: dict[str, Any] = {}
    if chance.random() < 0.4:
        options["slots"] = chance.choice((64, 256, 512, SLOTS))
    if chance.random() < 0.5:
        options["if_full"] = chance.choice((jobs_pb2.QUEUE, jobs_pb2.TAKE_LESS))
        options["queue_s"] = chance.choice((0.0, 5.0, 30.0))
    if chance.random() < 0.3:
        options["weight"] = chance.choice((1.0, 2.0, 4.0))
    return options


def _join(chance: Random) -> tuple[str, tuple[Any, ...]]:
    size, options = chance.choice((1, 2, 2, 3, 4)), _options(chance)
    if chance.random() < 0.15:
        options["quorum"] = chance.randrange(1, size + 1)
    slow = chance.choice((0.0, 0.0, 0.0, 0.5, 4.0))
    return "join", (chance.choice(_JOBS), size, chance.randrange(4), options, slow)


def _create(chance: Random) -> tuple[str, tuple[Any, ...]]:
    values = {"name": chance.choice(_JOBS), "world_size": chance.choice((1, 2, 3)), **_options(chance)}
    return "operate", ("CreateJob", values)


def _operate(chance: Random) -> tuple[str, tuple[Any, ...]]:
    method = chance.choice(("DeleteJob", "RestartJob", "RestartJob", "GetJob", "ListJobs", "ListSwitches"))
    return "operate", (method, {"name": chance.choice(_JOBS)} if "List" not in method else {})


_STEPS: Mapping[str, Callable[[Random], tuple[str, tuple[Any, ...]]]] = {
    "join": _join,
    "create": _create,
    "operate": _operate,
    "replace": lambda chance: ("replace", (chance.choice(_JOBS), chance.randrange(4), chance.randrange(4))),
    "newcomer": lambda chance: ("newcomer", (chance.choice(_JOBS), chance.randrange(4))),
    "leave": lambda chance: ("leave", (chance.randrange(12),)),
    "vanish": lambda chance: ("vanish", (chance.randrange(12), chance.choice((0.0, 0.001, 15.0)))),
    "cut": lambda chance: (
        "cut",
        (chance.randrange(12), chance.choice((0.0, 0.01, 15.0)), chance.choice((0.0, 0.1, 1.9, 2.1))),
    ),
    "again": lambda chance: ("again", (chance.randrange(12), chance.random() < 0.5)),
    "resize": lambda chance: ("resize", (chance.randrange(12), chance.choice((-1, -1, 0)))),
    "work": lambda chance: ("work", (chance.randrange(12), chance.randrange(1, 5))),
    "repeat": lambda chance: ("repeat", (chance.randrange(12),)),
    "restart_switch": lambda chance: (
        "restart_switch",
        (chance.randrange(4), chance.choice((0.0, 0.5, 12.0))),
    ),
    "break_session": lambda chance: ("break_session", (chance.randrange(4),)),
    "hang": lambda chance: ("hang", (chance.randrange(4), chance.choice((0.5, 4.0, 20.0)))),
    "refuse": lambda chance: ("refuse", (chance.randrange(4), chance.choice((1, 2, 5)))),
    "foreign": lambda chance: (
        "foreign",
        (chance.randrange(4), chance.random() < 0.3, chance.random() < 0.5),
    ),
    "fail_disk": lambda chance: (
        "fail_disk",
        (chance.choice(("write", "write", "commit", "read")), chance.randrange(8)),
    ),
    "fill_disk": lambda chance: ("fill_disk", (chance.choice((0.5, 3.0, 12.0)),)),
    "kill_at": lambda chance: (
        "kill_at",
        (chance.choice(("write", "commit", "read")), chance.randrange(8), chance.random() < 0.5),
    ),
    "kill": lambda chance: ("kill", (chance.choice((0.5, 2.0, 12.0)),)),
    "stop": lambda chance: ("stop", (chance.choice((2.0, 6.0, 12.0)),)),
    "second": lambda chance: ("second", (chance.choice((1.0, 10.0, 30.0)),)),
    "set_clock": lambda chance: ("set_clock", (chance.choice((-86_400.0, -1.0, 1.0, 3600.0)),)),
}

_OFTEN: Mapping[str, tuple[float, float]] = {
    # How likely a story has events of a kind, and how many they are then.
    "join": (1.0, 6),
    "create": (0.6, 2),
    "operate": (0.8, 3),
    "replace": (0.7, 3),
    "newcomer": (0.5, 2),
    "leave": (0.9, 3),
    "vanish": (0.6, 2),
    "cut": (0.6, 3),
    "again": (0.7, 3),
    "resize": (0.7, 4),
    "work": (0.5, 1),
    "repeat": (0.1, 1),
    "restart_switch": (0.5, 2),
    "break_session": (0.5, 2),
    "hang": (0.3, 1),
    "refuse": (0.3, 1),
    "foreign": (0.3, 1),
    "fail_disk": (0.5, 4),
    "fill_disk": (0.3, 1),
    "kill_at": (0.3, 1.5),
    "kill": (0.3, 1),
    "stop": (0.2, 0.7),
    "second": (0.2, 0.7),
    "set_clock": (0.2, 0.5),
}
