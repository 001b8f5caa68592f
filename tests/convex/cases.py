"""Checks of each method: its accuracy, its steps, and the promises of the theorems."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from host_agent.compression import make_compressor, make_memory
from tests.convex import theory
from tests.convex.data import WORKERS, problem
from tests.convex.minimize import Estimator, Progress, minimize
from tests.convex.star import SimulatedStar

ACCURACY: Final = 1e-10  # Squared distance to the optimum, relative to the start.
STALL: Final = 1e-3  # Methods without a memory stay above it.
_STALL_STEPS: Final = 300
_ROUGH: Final = 1e-2  # Accuracy for a hundred workers.
_MOST_STEPS: Final = 20_000  # Limit where no theorem gives one.

OnStep = Callable[[int, float], None]


@dataclass(frozen=True)
class Case:
    """A method on a problem."""

    problem: str
    method: str
    # compressor, options, memory: as `make_compressor` and `make_memory` take them.
    compressor: str
    options: dict[str, Any] = field(default_factory=dict)
    memory: str = "none"
    estimator: Estimator = "full"
    batch: int = 1  # Rows of a stochastic gradient.

    @property
    def through_slots(self) -> bool:
        """Whether the rounds go through a switch: it has no more than 32 ports."""
        return problem(self.problem).workers == WORKERS

    @property
    def stalls(self) -> bool:
        """Whether the method is expected to stall: workers that differ, and no memory."""
        return self.through_slots and self.memory == "none"

    @property
    def accuracy(self) -> float:
        """The aim of a case."""
        return ACCURACY if self.through_slots else _ROUGH


@dataclass(frozen=True)
class CaseResult:
    """Result of a case."""

    steps: int  # Steps to the accuracy, or to the end.
    # Steps to the square root of the accuracy; about half of `steps` where the rate is linear.
    half: int | None
    # Relative to the start: at the end, or for a method that stalls the least of the last two thirds.
    distance: float
    # Steps after which the theorem promises the accuracy; None where the step is larger than the theorem's.
    bound: int | None
    descent_steps: int | None  # Steps of gradient descent without compression, of a hundred workers.
    payload_bytes: float  # Bytes that a worker contributes in a step, agreements included.
    # Bytes that a worker sends in a step, headers and retransmissions included; None in memory.
    wire_bytes: float | None
    lost: int
    holds: bool


def cases_of(*, quick: bool = False) -> list[Case]:
    """Return all cases, or only those with full gradients on four workers."""
    bits = {"bits": 4}
    cases = []
    for name in ("ridge", "logistic"):
        cases += [
            Case(name, "DIANA", "terngrad", memory="diana"),
            Case(name, "DIANA", "block-float", bits, "diana"),
            Case(name, "TernGrad", "terngrad"),
            Case(name, "QSGD", "qsgd", {"levels": 1}),
        ]
    if not quick:
        one_percent = {"fraction": 0.01}
        cases += [
            Case("ridge", "VR-DIANA, L-SVRG", "block-float", bits, "diana", "l-svrg", 16),
            Case("ridge", "VR-DIANA, SAGA", "block-float", bits, "diana", "saga", 16),
            Case("ridge of 100", "ISEGA", "random-k-independent", one_percent, "diana"),
            Case("shared optimum", "IBGD", "random-k-independent", one_percent),
            Case("shared optimum", "ISGD", "random-k-independent", one_percent, "none", "sampled", 4),
        ]
    return cases


def run_case(case: Case, *, loss: float = 0.01, on_step: OnStep = lambda step, distance: None) -> CaseResult:
    """Run a case, with four workers through the slots of a simulated switch.

    `loss`: probability that a link loses a packet, each way.
    """
    task = problem(case.problem)
    omega = make_compressor(case.compressor, **case.options).omega(task.dimension, task.workers)
    assert omega is not None
    step, bound = _step_and_bound(case, omega)
    star = SimulatedStar(task.workers, loss=loss) if case.through_slots else None
    progress = minimize(
        task,
        lambda: make_compressor(case.compressor, **case.options),
        lambda: make_memory(case.memory),
        step=step,
        steps=_STALL_STEPS if case.stalls else bound or _MOST_STEPS,
        estimator=case.estimator,
        batch=case.batch,
        combine=star,
        accuracy=case.accuracy,
        on_step=on_step,
    )
    steps = len(progress.distances) - 1
    descent = None if case.through_slots else _descent_steps(case)
    tail = progress.distances[_STALL_STEPS // 3 :] if case.stalls else progress.distances[-1:]
    return CaseResult(
        steps=steps,
        half=progress.steps_to(case.accuracy**0.5),
        distance=min(tail),
        bound=bound,
        descent_steps=descent,
        payload_bytes=progress.payload_bytes / steps,
        wire_bytes=star.wire_bytes / steps / task.workers if star else None,
        lost=star.lost if star else 0,
        holds=_holds(case, progress, descent, bound, omega),
    )


def _step_and_bound(case: Case, omega: float) -> tuple[float, int | None]:
    """Return the step size, and how many steps the theorem allows; None without a theorem that covers the case."""
    task = problem(case.problem)
    if case.estimator in ("l-svrg", "saga"):
        # Theorem 3 allows 1 / (L (1 + 36 (ω + 1)/n)), a fifth of this; it is far from tight.
        return 1.0 / (2.0 * task.row_smoothness()), None
    if case.memory == "none" and not case.stalls:
        smoothness = task.smoothness() if case.estimator == "full" else task.row_smoothness()
        step = theory.compressed_descent_step(smoothness, omega, task.workers)
        return step, theory.steps_to(1.0 - step * task.convexity(), case.accuracy)
    step = theory.diana_step(task.smoothness(), omega, task.workers)
    if case.memory == "none":
        return step, None
    return step, theory.steps_to(theory.diana_rate(step, task.convexity(), omega), case.accuracy)


def _descent_steps(case: Case) -> int:
    """Return how many steps the same method needs without compression."""
    task = problem(case.problem)
    smoothness = task.smoothness() if case.estimator == "full" else task.row_smoothness()
    plain = minimize(
        task,
        lambda: make_compressor("identity"),
        lambda: make_memory("none"),
        step=theory.gradient_descent_step(smoothness),
        steps=_MOST_STEPS,
        estimator=case.estimator,
        batch=case.batch,
        accuracy=case.accuracy,
    )
    return len(plain.distances) - 1


def _holds(case: Case, progress: Progress, descent: int | None, bound: int | None, omega: float) -> bool:
    if case.stalls:
        return min(progress.distances[_STALL_STEPS // 3 :]) > STALL
    reached = progress.steps_to(case.accuracy)
    if reached is None or descent is None:
        return reached is not None
    # The theorem on independent blocks bounds their steps: 1 + ω/n times as many as it allows without compression.
    allowed = bound if case.memory == "none" else _allowed(case, descent, omega)
    return allowed is not None and reached <= allowed


def _allowed(case: Case, descent: int, omega: float) -> float:
    """Return how many steps the theory allows ISEGA with a hundred workers, given those without compression.

    1 + 6 ω/n times as many, or the steps of its shifts if there are more.
    """
    workers = problem(case.problem).workers
    shifts = theory.steps_to(1.0 - theory.diana_alpha(omega) / 2.0, case.accuracy)
    return max((1.0 + 6.0 * omega / workers) * descent, shifts)
