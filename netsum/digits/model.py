"""A multi-layer perceptron on one flat parameter vector: forward, loss and gradient in NumPy.

One vector, because an all-reduce takes one; the layers are views of it. Everything is
deterministic: the same parameters and the same batch give the same bits in every process on a machine.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating]
Labels = NDArray[np.int64]


class Perceptron:
    """Dense layers with ReLU between them and softmax cross-entropy on top.

    `widths`: number of inputs, of units in each hidden layer, of classes. `dtype`: float32 to train; float64 to check
    gradients.
    """

    def __init__(self, widths: Sequence[int], dtype: type[np.floating] = np.float32) -> None:
        if len(widths) < 2 or min(widths) < 1:
            raise ValueError(
                f"expected the widths of at least two layers, each 1 or more, not {list(widths)}"
            )
        self.widths = tuple(widths)
        self.dtype = dtype
        self._shapes = list(zip(self.widths[:-1], self.widths[1:], strict=True))
        self.size = sum((inputs + 1) * outputs for inputs, outputs in self._shapes)

    def initial_parameters(self, seed: int) -> Floats:
        """He-normal weights and zero biases, shape (size,)."""
        generator = np.random.default_rng(seed)
        parameters = np.zeros(self.size, self.dtype)
        for weights, _ in self._layers(parameters):
            weights[...] = generator.standard_normal(weights.shape) * np.sqrt(2 / weights.shape[0])
        return parameters

    def accuracy(self, parameters: Floats, images: Floats, labels: Labels) -> float:
        """Return the share of a batch that is classified right; images (n, inputs), labels (n,)."""
        return float(np.mean(self._activations(parameters, images)[-1].argmax(axis=1) == labels))

    def gradient(self, parameters: Floats, images: Floats, labels: Labels) -> tuple[float, Floats]:
        """Return the cross-entropy summed over a batch, and the gradient of its mean, shape (size,)."""
        *activations, logits = self._activations(parameters, images)
        chosen = np.arange(len(labels)), labels
        shifted = logits - logits.max(axis=1, keepdims=True)
        ascent: Floats = np.exp(shifted)
        normal = ascent.sum(axis=1, keepdims=True)
        loss = float(np.sum(np.log(normal[:, 0]) - shifted[chosen], dtype=np.float64))
        ascent /= normal  # The softmax.
        ascent[chosen] -= 1
        ascent /= len(labels)
        gradient = np.empty(self.size, self.dtype)
        layers, of_layers = self._layers(parameters), self._layers(gradient)
        for number in range(len(layers) - 1, -1, -1):
            weight_gradient, bias_gradient = of_layers[number]
            np.matmul(activations[number].T, ascent, out=weight_gradient)
            np.sum(ascent, axis=0, out=bias_gradient)
            if number:
                ascent = (ascent @ layers[number][0].T) * (activations[number] > 0)
        return loss, gradient

    def _activations(self, parameters: Floats, images: Floats) -> list[Floats]:
        """Return the inputs of each layer, and the logits."""
        *hidden, (weights, bias) = self._layers(parameters)
        found = [images]
        for each, its_bias in hidden:
            found.append(np.maximum(found[-1] @ each + its_bias, 0))
        return [*found, found[-1] @ weights + bias]

    def _layers(self, flat: Floats) -> list[tuple[Floats, Floats]]:
        """Each layer's (weights, bias) as views of a flat vector."""
        layers: list[tuple[Floats, Floats]] = []
        start = 0
        for inputs, outputs in self._shapes:
            weights = flat[start : start + inputs * outputs].reshape(inputs, outputs)
            start += inputs * outputs
            layers.append((weights, flat[start : start + outputs]))
            start += outputs
        return layers


class MomentumDescent:
    """Stochastic gradient descent with momentum, in place and in float32."""

    def __init__(self, parameters: Floats, rate: float, momentum: float = 0.9) -> None:
        self.parameters = parameters
        self.velocity = np.zeros_like(parameters)
        self._rate = parameters.dtype.type(rate)
        self._momentum = parameters.dtype.type(momentum)

    def step(self, gradient: Floats) -> None:
        """Take one step."""
        self.velocity *= self._momentum
        self.velocity += gradient
        self.parameters -= self._rate * self.velocity
