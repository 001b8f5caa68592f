"""Points of `netsum compression bench`: tasks, compressors with the memory that suits each, and names of results."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from netsum.bench.results import require

TASKS: Final = {"digits_cnn": 150, "char_lstm": 150, "wide_embedding": 60, "transformer_lm": 120}
"""Modules in examples/, and steps."""
UNCOMPRESSED: Final = "none"


@dataclass(frozen=True)
class Method:
    """A compressor as it is compared."""

    memory: str = "none"
    granularity: str = "bucket"
    options: dict[str, Any] = field(default_factory=dict)


METHODS: Final[dict[str, tuple[str, Method]]] = {
    "identity": ("identity", Method()),
    "bfloat16": ("bfloat16", Method()),
    "block-float-8": ("block-float", Method(options={"bits": 8})),
    "block-float-4": ("block-float", Method(options={"bits": 4})),
    "intsgd": ("intsgd", Method()),
    "qsgd": ("qsgd", Method(options={"levels": 127})),
    "terngrad": ("terngrad", Method(granularity="layer")),
    "natural": ("natural", Method()),
    "sign-vote": ("sign-vote", Method("average")),
    "scaled-sign": ("scaled-sign", Method("residual", "layer")),
    "onebit": ("onebit", Method("residual", "layer")),
    "thc": ("thc", Method("residual")),
    "drive": ("drive", Method()),
    "eden": ("eden", Method()),
    "eight-bit": ("eight-bit", Method()),
    "inceptionn": ("inceptionn", Method(options={"bits": 16})),
    "sketchml": ("sketchml", Method()),
    "random-k": ("random-k", Method("residual", options={"fraction": 0.1, "scaled": False})),
    "top-k": ("top-k", Method("residual", options={"fraction": 0.02})),
    "top-k-10": ("top-k", Method("residual", options={"fraction": 0.1})),
    "block-top-k": ("block-top-k", Method("residual", options={"fraction": 0.05, "block": 64})),
    "adaptive-threshold": ("adaptive-threshold", Method("residual", options={"share": 0.3})),
    "dgc": ("dgc", Method("momentum", options={"fraction": 0.01})),
    "agreed-top-k": ("agreed-top-k", Method("residual", options={"fraction": 0.05})),
    "agreed-top-k-20": ("agreed-top-k", Method("residual", options={"fraction": 0.2})),
    "qsparse": ("qsparse", Method("residual", options={"fraction": 0.02})),
    "random-block-float": ("random-block-float", Method(options={"fraction": 0.25})),
    "3lc": ("3lc", Method("residual", "layer")),
    "count-sketch": ("count-sketch", Method()),
    "powersgd": ("powersgd", Method("residual", "layer", {"rank": 4})),
    "atomo": ("atomo", Method("none", "layer", {"rank": 4})),
}
"""Compressors by the name in tables, each with its memory, granularity and options."""
GRANULARITIES: Final = ("layer", "bucket", "model")
MEMORIES: Final = ("none", "residual", "ef21", "diana", "momentum", "average")
QUICK_METHODS: Final = ("none", "block-float-8", "top-k", "powersgd")


def method_of(text: str) -> tuple[str, Method]:
    """Return the compressor of a method, and what goes with it.

    `text`: a key of `METHODS`, which may be followed by ``+MEMORY`` and ``@GRANULARITY`` in place of its own. Raises
    ArgumentError if a name is unknown.
    """
    rest, _, granularity = text.partition("@")
    name, _, memory = rest.partition("+")
    require("method", name, (UNCOMPRESSED, *METHODS))
    compressor, method = METHODS[name]
    if memory:
        require("memory", memory, MEMORIES)
        method = replace(method, memory=memory)
    if granularity:
        require("granularity", granularity, GRANULARITIES)
        method = replace(method, granularity=granularity)
    return compressor, method


@dataclass(frozen=True)
class Point:
    """One training."""

    # task, method: a key of `TASKS`, and what `method_of` takes or "none".
    task: str
    method: str
    backend: str
    seed: int  # Seed of the model, the batches and the compressor.
    steps: int
    network: str  # Topology and rate of the links, as tables name them.

    @property
    def file_name(self) -> str:
        """Name of the file of its result."""
        words = (
            self.task,
            self.method,
            self.backend,
            f"{self.steps}-steps",
            f"seed-{self.seed}",
            self.network,
        )
        return "_".join(words).replace(" ", "-").replace("/", "-") + ".json"

    def __str__(self) -> str:
        return f"{self.task}, {self.method} over {self.backend}, seed {self.seed}"


@dataclass(frozen=True)
class Curve:
    """Result of a training."""

    # steps, seconds, accuracies: at each look: steps made, time spent in them, and the share of right answers.
    steps: list[int]
    seconds: list[float]
    accuracies: list[float]
    # sent_bytes, received_bytes: a step, counted by the interface of rank 0's host: every frame, of all protocols.
    sent_bytes: float
    received_bytes: float
    gradient_bytes: int
    compress_ms: float  # Time of rank 0 in the compressor, a step.


def points_of(
    tasks: Sequence[str],
    methods: Sequence[str],
    backends: Sequence[str],
    seeds: int,
    scale: float,
    network: str,
) -> list[Point]:
    """Return all points, those without compression first, for the others are compared with them.

    Raises ArgumentError if a name is unknown.
    """
    for kind, names, known in (("task", tasks, tuple(TASKS)), ("backend", backends, ("netsum", "gloo"))):
        for name in names:
            require(kind, name, known)
    for name in methods:
        if name != UNCOMPRESSED:
            method_of(name)
    ordered = [UNCOMPRESSED, *(name for name in methods if name != UNCOMPRESSED)]
    return [
        Point(task, method, backend, seed, max(1, round(TASKS[task] * scale)), network)
        for seed in range(seeds)
        for task in tasks
        for method in ordered
        for backend in backends
    ]
