"""Requests whose results are proven before they are returned."""

from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar

import numpy as np

from host_agent.codecs.accumulator import Accumulator
from host_agent.collectives import Collective, Request
from host_agent.collectives.collective import Passes
from host_agent.errors import MisuseError, VerificationError
from host_agent.protocol.passes import Pass
from host_agent.statistics import Statistics
from host_agent.verification.checked import Checks
from host_agent.verification.keys import make_keys
from host_agent.verification.masking import Masks
from host_agent.verification.secret import Session
from host_agent.wire import Admission, fingerprint

T = TypeVar("T")
OnCorruption = Literal["raise", "retry"]


@dataclass(frozen=True, eq=False)
class VerifiedRequest(Request[T]):
    """A request with a check of its result; see `host_agent.verification.seals`."""

    request: Request[T]
    session: Session
    on_corruption: OnCorruption = "raise"
    private: bool = False
    scale: float = 0.0  # As for `Trust`.

    def plan(self, admission: Admission, sequence: int) -> Collective[T]:
        """Plan the collective and its check; see `Request.plan`."""
        retries = self.on_corruption == "retry"
        request, out = _repeatable(self.request) if retries else (self.request, None)
        first = request.plan(admission, sequence)
        attempts = [first]
        checks: list[Checks] = []

        def attempt() -> Passes:
            """Yield the passes of the collective and its check."""
            keys = make_keys(self.session.key, admission.rank, admission.world_size, admission.lanes)
            checks.append(Checks(keys, sequence, len(checks), first.disjoint))
            masks = Masks(keys, sequence, len(checks) - 1, self.scale) if self.private else None
            for step in attempts[-1].passes:
                if not isinstance(step, Pass):
                    yield step
                elif masks is None:
                    yield checks[-1].watch(step)
                else:
                    yield from checks[-1].masked(step, masks)
            while checks[-1].waiting:
                yield None
            yield checks[-1].closing()

        def verdict() -> Passes:
            """Let all workers learn whether one of them has found a fault."""
            while checks[-1].incomplete:
                yield None
            said = checks[-1].verdict()
            yield said
            while not said.done:
                yield None

        def passes() -> Passes:
            if not self.session.open:
                yield from self.session.passes(admission)
            yield from attempt()
            if not retries:
                return
            yield from verdict()
            if checks[-1].disputed:
                attempts.append(request.plan(admission, sequence))
                yield from attempt()

        def finish(statistics: Statistics) -> T:
            fault = checks[-1].fault()
            statistics.verified += 1
            statistics.corrupted += len(attempts) - 1 + bool(fault)
            if fault:
                raise VerificationError(
                    f"{first.what}: worker {admission.rank} did not receive the result of one contribution of every worker: "
                    f"{fault}"
                )
            result: Any = attempts[-1].finish(statistics)
            if out is not None:
                out[...] = result
                result = out
            return result  # type: ignore[no-any-return]

        mark = first.label_mark ^ fingerprint(
            kind="verified", retries=retries, private=self.private, scale=str(self.scale)
        )
        return Collective(
            first.what, first.elements, passes(), finish, label_mark=mark, may_offer=first.may_offer
        )


def _repeatable(request: Any) -> tuple[Any, Any]:
    """Return a request that does not change its arrays, and the array for its result; None: a new one."""
    if any(isinstance(value, Accumulator) for value in vars(request).values()):
        raise MisuseError(
            "on_corruption='retry': pass arrays, as an Accumulator is emptied by the first attempt"
        )
    out = getattr(request, "out", None)
    if out is None or not isinstance(out, np.ndarray):
        return request, None
    return replace(request, out=None), out
