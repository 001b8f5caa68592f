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

    def loss_sum(self, parameters: Floats, images: Floats, labels: Labels) -> float:
        """Return the cross-entropy summed over a batch; images (n, inputs), labels (n,)."""
        return _cross_entropy_sum(self._logits(parameters, images), labels)

    def accuracy(self, parameters: Floats, images: Floats, labels: Labels) -> float:
        """Return the share of a batch that is classified right."""
        return float(np.mean(self._logits(parameters, images).argmax(axis=1) == labels))

    def gradient(self, parameters: Floats, images: Floats, labels: Labels) -> tuple[float, Floats]:
        """Return the cross-entropy summed over a batch, and the gradient of its mean, shape (size,)."""
        layers = self._layers(parameters)
        activations = [images]
        for weights, bias in layers[:-1]:
            activations.append(np.maximum(activations[-1] @ weights + bias, 0))
        weights, bias = layers[-1]
        logits = activations[-1] @ weights + bias

        gradient = np.empty(self.size, self.dtype)
        gradient_layers = self._layers(gradient)
        ascent = _softmax(logits)
        ascent[np.arange(len(labels)), labels] -= 1
        ascent /= len(labels)
        for number in range(len(layers) - 1, -1, -1):
            weight_gradient, bias_gradient = gradient_layers[number]
            np.matmul(activations[number].T, ascent, out=weight_gradient)
            np.sum(ascent, axis=0, out=bias_gradient)
            if number:
                ascent = (ascent @ layers[number][0].T) * (activations[number] > 0)
        return _cross_entropy_sum(logits, labels), gradient

    def _logits(self, parameters: Floats, images: Floats) -> Floats:
        layers = self._layers(parameters)
        hidden = images
        for weights, bias in layers[:-1]:
            hidden = np.maximum(hidden @ weights + bias, 0)
        weights, bias = layers[-1]
        return hidden @ weights + bias

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


def _softmax(logits: Floats) -> Floats:
    exponentials: Floats = np.exp(logits - logits.max(axis=1, keepdims=True))
    exponentials /= exponentials.sum(axis=1, keepdims=True)
    return exponentials


def _cross_entropy_sum(logits: Floats, labels: Labels) -> float:
    shifted = logits - logits.max(axis=1, keepdims=True)
    log_normal = np.log(np.exp(shifted).sum(axis=1))
    chosen = shifted[np.arange(len(labels)), labels]
    return float(np.sum(log_normal - chosen, dtype=np.float64))
