"""IntSGD: random rounding to integers with a scale that follows the size of the last steps."""

import math
from typing import Annotated

import torch
from torch import Tensor

from host_agent.compression.compressor import Agreement, Compressor, Context, Payload, Summability
from host_agent.compression.packing import stochastic_round

_LARGEST_SUM = 2**30
_SMALLEST = 2.0**-149  # Smallest float32: where all elements are zero, any scale will do.


class IntSGD(Compressor):
    """Rounds α g randomly to integers, which are summed as they are.

    α = √d / √(2 n r + ε²), where r is a moving average of the squared norm of the reduced gradients (the paper's of the steps,
    divided by the squared step size, so the scale does not depend on the optimizer). The workers agree on the largest magnitude,
    and α is at most what keeps the sum within the integers: after a step of zeros, or one far smaller than this one, the
    average says nothing. The error of a worker has a variance of at most d / (4 α²), which is not relative to its own tensor.

    `beta`: of the moving average. `epsilon`: keeps α finite when gradients vanish.
    """

    name = "intsgd"
    family = "quantization"
    source = "Mishchenko, Wang, Kovalev, Richtárik, ICLR 2022, algorithm 1"
    summability = Summability.INTEGERS
    unbiased = True

    def __init__(
        self, beta: Annotated[float, "[0, 1)"] = 0.9, epsilon: Annotated[float, "(0, ∞)"] = 1e-8
    ) -> None:
        super().__init__()
        self.beta, self.epsilon = beta, epsilon

    def agree(self, tensor: Tensor, context: Context) -> Agreement:
        return Agreement(tensor.abs().amax().view(1), "max")

    def alpha(self, shared: Tensor | None, context: Context) -> float:
        """Return the scale of this step: in the first one, which has no average, the largest that the integers allow."""
        assert shared is not None
        largest = (_LARGEST_SUM // context.workers) / max(float(shared), _SMALLEST)
        if context.key not in self.state:
            return largest
        average = float(self.state[context.key]["average"])
        followed = math.sqrt(context.elements) / math.sqrt(2 * context.workers * average + self.epsilon**2)
        return min(followed, largest)

    def compress(self, tensor: Tensor, shared: Tensor | None, context: Context) -> Payload:
        scaled = stochastic_round(tensor.double() * self.alpha(shared, context), context.own_generator())
        return (scaled.to(torch.int32),)

    def decompress(self, payload: Payload, shared: Tensor | None, context: Context, count: int = 1) -> Tensor:
        return (payload[0].double() / self.alpha(shared, context)).to(torch.float32).view(context.shape)

    def reduced(self, mean: Tensor, context: Context) -> None:
        """Let the scale follow the reduced gradient."""
        norm = mean.double().square().sum()
        old = self.state.get(context.key, {}).get("average")
        self.state[context.key] = {
            "average": norm if old is None else self.beta * old + (1 - self.beta) * norm
        }
