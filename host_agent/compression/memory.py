"""Memories: the treatment of the compression error."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Annotated, ClassVar

import torch
from torch import Tensor

from host_agent.compression.compressor import Compressor, IncompatibleError, Stateful
from host_agent.options import Fraction

Layout = tuple[tuple[str, int], ...]  # Names and numbers of elements of the parameters in a tensor, in order.


class Memory(Stateful, ABC):
    """Chooses the tensor that is compressed, and the gradient for the optimizer.

    `before` turns a gradient into the tensor to compress; `after` takes this worker's decompressed payload and the mean over all
    workers, updates the state, and returns the estimate of the mean gradient. State is kept by parameter, so it
    survives when a bucket is put together differently.
    """

    KIND = "memory"
    # name, source: as for a compressor.
    name: ClassVar[str]
    source: ClassVar[str]

    def attach(self, compressor: Compressor, workers: int) -> None:
        """Learn what compresses for how many workers; raise `IncompatibleError` if that makes no sense."""

    @abstractmethod
    def before(self, layout: Layout, gradient: Tensor) -> Tensor:
        """Return the tensor to compress. Changes no state: the step may still fail."""

    @abstractmethod
    def after(self, layout: Layout, gradient: Tensor, sent: Tensor, own: Tensor, mean: Tensor) -> Tensor:
        """Update the state and return the estimate of the mean gradient.

        `layout` (tuple of (str, int)): the parameters in the tensor: names and numbers of elements. `gradient`: the argument
        of `before`. `sent`: the result of `before`. `own`, `mean`: this worker's decompressed payload, and its mean over all
        workers.
        """

    def _get(self, layout: Layout, field: str, like: Tensor) -> Tensor:
        """Return a field of the state as a tensor like `like`; zeros where there is none."""
        parts = []
        for name, elements in layout:
            stored = self.state.get(name, {}).get(field)
            parts.append(like.new_zeros(elements) if stored is None else stored)
        return (parts[0] if len(parts) == 1 else torch.cat(parts)).view_as(like)

    def _set(self, layout: Layout, **fields: Tensor) -> None:
        """Store fields of the state, each a tensor as long as the layout."""
        sizes = [elements for _, elements in layout]
        split = {field: tensor.reshape(-1).split(sizes) for field, tensor in fields.items()}
        for place, (name, _) in enumerate(layout):
            self.state[name] = {field: parts[place] for field, parts in split.items()}


class NoMemory(Memory):
    """No error feedback."""

    name = "none"
    source = ""

    def before(self, layout: Layout, gradient: Tensor) -> Tensor:
        """Return the gradient."""
        return gradient

    def after(self, layout: Layout, gradient: Tensor, sent: Tensor, own: Tensor, mean: Tensor) -> Tensor:
        """Return the mean."""
        return mean


class _ErrorFeedback(Memory):
    """Keeps the compression error, which a contraction makes smaller.

    An unbiased compressor is a contraction when it is scaled by 1 / (1 + ω) (Beznosikov, Horváth, Richtárik, Safaryan, JMLR
    2023, theorem 3); unscaled, with ω ≥ 1, the kept error grows without limit.
    """

    def __init__(self) -> None:
        super().__init__()
        self._scale: Callable[[int], float] = lambda elements: 1.0

    def attach(self, compressor: Compressor, workers: int) -> None:
        """Refuse compressors whose error a worker cannot know; learn the scale of unbiased ones."""
        if not compressor.linear:
            raise IncompatibleError(
                f"memory {self.name} needs a compressor whose result is the sum of what each worker sent; that of "
                f"{compressor.name} is not, so a worker cannot know what was lost: use memory none or average"
            )
        self._scale = lambda elements: 1.0 / (1.0 + (compressor.omega(elements, workers) or 0.0))


class Residual(_ErrorFeedback):
    """Error feedback: the compression error is added to the next gradient.

    e ← g + e − C(g + e). A contractive compressor with it converges like SGD without compression (Karimireddy et al., ICML
    2019, theorem II); an unbiased one is scaled to be contractive.

    `decay`: of e before g is added; below 1 old errors fade, as in SparseLoCo.
    """

    name = "residual"
    source = "Seide et al., Interspeech 2014; Karimireddy et al., ICML 2019"

    def __init__(self, decay: Fraction = 1.0) -> None:
        super().__init__()
        self.decay = decay

    def before(self, layout: Layout, gradient: Tensor) -> Tensor:
        """Return gradient plus residual."""
        return gradient + self.decay * self._get(layout, "residual", gradient)

    def after(self, layout: Layout, gradient: Tensor, sent: Tensor, own: Tensor, mean: Tensor) -> Tensor:
        """Keep the compression error; return the mean."""
        scale = self._scale(sent.numel())
        self._set(layout, residual=sent - scale * own)
        return scale * mean


class EF21(Memory):
    """EF21: compressed differences to a local estimate, for contractive compressors.

    g_i ← g_i + C(∇f_i − g_i), and the estimate of the mean gradient is the mean of the g_i.
    """

    name = "ef21"
    source = "Richtárik, Sokolov, Fatkhullin, NeurIPS 2021"

    def attach(self, compressor: Compressor, workers: int) -> None:
        """Refuse compressors without a declared contraction: EF21 diverges with them."""
        if compressor.delta(1024) is None:
            raise IncompatibleError(
                f"memory ef21 needs a contractive compressor (a declared delta); {compressor.name} has none: "
                "use memory diana for unbiased compressors"
            )

    def before(self, layout: Layout, gradient: Tensor) -> Tensor:
        """Return the difference to the local estimate."""
        return gradient - self._get(layout, "own", gradient)

    def after(self, layout: Layout, gradient: Tensor, sent: Tensor, own: Tensor, mean: Tensor) -> Tensor:
        """Move both estimates; return the one of the mean."""
        estimate = self._get(layout, "mean", mean) + mean
        self._set(layout, own=self._get(layout, "own", gradient) + own, mean=estimate)
        return estimate


class Diana(Memory):
    """DIANA: compressed differences to a learned shift, for unbiased compressors.

    Δ_i = C(∇f_i − h_i), estimate h + mean Δ, then h_i ← h_i + α Δ_i and h ← h + α mean Δ. The shifts tend to the gradients at
    the optimum, so the variance of compression tends to zero although the workers' gradients differ.

    `alpha`: step of the shift; 1 / (1 + ω) by default (theorem 1 allows no more).
    """

    name = "diana"
    source = "Mishchenko, Gorbunov, Takáč, Richtárik, arXiv:1901.09269; Horváth et al., arXiv:1904.05115"

    def __init__(self, alpha: Fraction | None = None) -> None:
        super().__init__()
        self.alpha = alpha
        self._omega: Callable[[int], float] = lambda elements: 1.0

    def attach(self, compressor: Compressor, workers: int) -> None:
        """Refuse biased compressors; learn ω of this one."""
        if not compressor.unbiased:
            raise IncompatibleError(
                f"memory diana needs an unbiased compressor; {compressor.name} is biased: use memory residual or ef21"
            )
        if self.alpha is None and compressor.omega(1024) is None:
            raise IncompatibleError(f"{compressor.name} declares no omega: give memory diana its alpha")
        self._omega = lambda elements: compressor.omega(elements, workers) or 0.0

    def before(self, layout: Layout, gradient: Tensor) -> Tensor:
        """Return the difference to the shift."""
        return gradient - self._get(layout, "own", gradient)

    def after(self, layout: Layout, gradient: Tensor, sent: Tensor, own: Tensor, mean: Tensor) -> Tensor:
        """Move the shifts; return the estimate."""
        alpha = self.alpha if self.alpha is not None else 1.0 / (1.0 + self._omega(gradient.numel()))
        shift = self._get(layout, "mean", mean)
        own_shift = self._get(layout, "own", gradient)
        self._set(layout, own=own_shift + alpha * own, mean=shift + alpha * mean)
        return shift + mean


class MomentumCorrection(_ErrorFeedback):
    """Deep gradient compression's memory: momentum before accumulation, both cleared where a value was sent.

    u ← m u + g, v ← v + u; v is compressed; u and v become 0 where it was sent. The optimizer must not add momentum again.

    `momentum`: m. `clip_norm`: each worker clips its gradient to clip_norm / √n, n the number of workers, before it is
    accumulated.
    """

    name = "momentum"
    source = "Lin, Han, Mao, Wang, Dally, ICLR 2018, sections 3.1 to 3.3"

    def __init__(
        self, momentum: Annotated[float, "[0, 1)"] = 0.9, clip_norm: Annotated[float, "(0, ∞)"] | None = None
    ) -> None:
        super().__init__()
        self.momentum, self.clip_norm, self.workers = momentum, clip_norm, 1

    def attach(self, compressor: Compressor, workers: int) -> None:
        """Learn n, by which the clipping depends on the number of workers, too."""
        super().attach(compressor, workers)
        self.workers = workers

    def before(self, layout: Layout, gradient: Tensor) -> Tensor:
        """Return the accumulated gradients, this one included."""
        return self._get(layout, "velocity", gradient) + self._momentum(layout, gradient)

    def after(self, layout: Layout, gradient: Tensor, sent: Tensor, own: Tensor, mean: Tensor) -> Tensor:
        """Keep the unsent part; return the mean."""
        kept = own == 0
        momentum = self._momentum(layout, gradient) * kept
        scale = self._scale(sent.numel())
        self._set(layout, momentum=momentum, velocity=sent - scale * own)
        return scale * mean

    def _momentum(self, layout: Layout, gradient: Tensor) -> Tensor:
        if self.clip_norm is not None:
            limit = self.clip_norm / self.workers**0.5
            gradient = gradient * (limit / gradient.norm().clamp(min=limit))
        return self.momentum * self._get(layout, "momentum", gradient) + gradient


class Momentum(Memory):
    """Compresses the momentum in place of the gradient: with votes of signs this is Signum.

    `momentum`: m ← βm + (1 − β)g.
    """

    name = "average"
    source = "Bernstein, Zhao, Azizzadenesheli, Anandkumar, ICLR 2019, algorithm 1"

    def __init__(self, momentum: Annotated[float, "[0, 1)"] = 0.9) -> None:
        super().__init__()
        self.momentum = momentum

    def before(self, layout: Layout, gradient: Tensor) -> Tensor:
        """Return the running average."""
        return self.momentum * self._get(layout, "average", gradient) + (1 - self.momentum) * gradient

    def after(self, layout: Layout, gradient: Tensor, sent: Tensor, own: Tensor, mean: Tensor) -> Tensor:
        """Keep the running average; return the mean."""
        self._set(layout, average=sent)
        return mean
