"""The layers of well-known networks: their parameters, and multiplications a sample needs in the forward pass.

As torchvision and the papers have them; totals are compared with the published ones by a test.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Final

Layer = tuple[str, int, int]  # Name, parameters, multiplications a sample.
Kernel = int | tuple[int, int]  # Its side, or height and width.

_CLASSES: Final = 1000


def _conv(name: str, inputs: int, outputs: int, kernel: Kernel, side: int, bias: bool = True) -> Layer:
    """Return a convolution whose output has `side` × `side` places."""
    height, width = (kernel, kernel) if isinstance(kernel, int) else kernel
    weights = inputs * outputs * height * width
    return name, weights + outputs * bias, weights * side * side


def _linear(name: str, inputs: int, outputs: int, times: int = 1) -> Layer:
    return name, inputs * outputs + outputs, inputs * outputs * times


def _norm(name: str, width: int) -> Layer:
    return name, 2 * width, 0


def _alexnet() -> Iterator[Layer]:
    """Krizhevsky, "One weird trick for parallelizing convolutional neural networks", 2014."""
    for number, (inputs, outputs, kernel, side) in enumerate(
        [(3, 64, 11, 55), (64, 192, 5, 27), (192, 384, 3, 13), (384, 256, 3, 13), (256, 256, 3, 13)]
    ):
        yield _conv(f"conv{number + 1}", inputs, outputs, kernel, side)
    yield _linear("fc6", 9216, 4096)
    yield _linear("fc7", 4096, 4096)
    yield _linear("fc8", 4096, _CLASSES)


def _vgg16() -> Iterator[Layer]:
    """Simonyan, Zisserman, "Very deep convolutional networks for large-scale image recognition", 2014; configuration D."""
    inputs, side = 3, 224
    for stage, (width, count) in enumerate([(64, 2), (128, 2), (256, 3), (512, 3), (512, 3)], start=1):
        for number in range(1, count + 1):
            yield _conv(f"conv{stage}_{number}", inputs, width, 3, side)
            inputs = width
        side //= 2
    yield _linear("fc6", 25088, 4096)
    yield _linear("fc7", 4096, 4096)
    yield _linear("fc8", 4096, _CLASSES)


def _resnet(blocks: tuple[int, ...]) -> Iterator[Layer]:
    """He et al., "Deep residual learning for image recognition", 2015; bottleneck blocks."""
    yield _conv("conv1", 3, 64, 7, 112, bias=False)
    yield _norm("bn1", 64)
    inputs, side = 64, 56
    for stage, count in enumerate(blocks, start=1):
        width = 64 << (stage - 1)
        for number in range(count):
            name = f"layer{stage}.{number}"
            halved = side // 2 if number == 0 and stage > 1 else side
            yield _conv(f"{name}.conv1", inputs, width, 1, side, bias=False)
            yield _norm(f"{name}.bn1", width)
            yield _conv(f"{name}.conv2", width, width, 3, halved, bias=False)
            yield _norm(f"{name}.bn2", width)
            yield _conv(f"{name}.conv3", width, 4 * width, 1, halved, bias=False)
            yield _norm(f"{name}.bn3", 4 * width)
            if number == 0:
                yield _conv(f"{name}.downsample", inputs, 4 * width, 1, halved, bias=False)
                yield _norm(f"{name}.downsample.bn", 4 * width)
            inputs, side = 4 * width, halved
    yield _linear("fc", 2048, _CLASSES)


def _inception() -> Iterator[Layer]:
    """Szegedy et al., "Rethinking the Inception architecture for computer vision", 2015; without the auxiliary classifier."""

    def unit(name: str, inputs: int, outputs: int, kernel: Kernel, side: int) -> Iterator[Layer]:
        yield _conv(name, inputs, outputs, kernel, side, bias=False)
        yield _norm(f"{name}.bn", outputs)

    def chain(name: str, inputs: int, steps: Sequence[tuple[int, Kernel]], side: int) -> Iterator[Layer]:
        for number, (outputs, kernel) in enumerate(steps):
            yield from unit(f"{name}.{number}", inputs, outputs, kernel, side)
            inputs = outputs

    yield from unit("conv1a", 3, 32, 3, 149)
    yield from unit("conv2a", 32, 32, 3, 147)
    yield from unit("conv2b", 32, 64, 3, 147)
    yield from unit("conv3b", 64, 80, 1, 73)
    yield from unit("conv4a", 80, 192, 3, 71)
    inputs = 192
    for name, pool in (("5b", 32), ("5c", 64), ("5d", 64)):
        yield from chain(f"mixed{name}.1x1", inputs, [(64, 1)], 35)
        yield from chain(f"mixed{name}.5x5", inputs, [(48, 1), (64, 5)], 35)
        yield from chain(f"mixed{name}.3x3", inputs, [(64, 1), (96, 3), (96, 3)], 35)
        yield from chain(f"mixed{name}.pool", inputs, [(pool, 1)], 35)
        inputs = 224 + pool
    yield from chain("mixed6a.3x3", inputs, [(384, 3)], 17)
    yield from chain("mixed6a.double", inputs, [(64, 1), (96, 3), (96, 3)], 17)
    wide, tall = (1, 7), (7, 1)
    for name, width in (("6b", 128), ("6c", 160), ("6d", 160), ("6e", 192)):
        yield from chain(f"mixed{name}.1x1", 768, [(192, 1)], 17)
        yield from chain(f"mixed{name}.7x7", 768, [(width, 1), (width, wide), (192, tall)], 17)
        double: list[tuple[int, Kernel]] = [
            (width, 1),
            (width, tall),
            (width, wide),
            (width, tall),
            (192, wide),
        ]
        yield from chain(f"mixed{name}.double", 768, double, 17)
        yield from chain(f"mixed{name}.pool", 768, [(192, 1)], 17)
    yield from chain("mixed7a.3x3", 768, [(192, 1), (320, 3)], 8)
    yield from chain("mixed7a.7x7", 768, [(192, 1), (192, wide), (192, tall), (192, 3)], 8)
    inputs = 1280
    for name in ("7b", "7c"):
        yield from chain(f"mixed{name}.1x1", inputs, [(320, 1)], 8)
        yield from chain(f"mixed{name}.3x3", inputs, [(384, 1)], 8)
        for kernel in ((1, 3), (3, 1)):
            yield from unit(f"mixed{name}.3x3.{kernel}", 384, 384, kernel, 8)
        yield from chain(f"mixed{name}.double", inputs, [(448, 1), (384, 3)], 8)
        for kernel in ((1, 3), (3, 1)):
            yield from unit(f"mixed{name}.double.{kernel}", 384, 384, kernel, 8)
        yield from chain(f"mixed{name}.pool", inputs, [(192, 1)], 8)
        inputs = 2048
    yield _linear("fc", 2048, _CLASSES)


def _encoder(layers: int, width: int, inner: int, tokens: int) -> Iterator[Layer]:
    for number in range(layers):
        name = f"layer{number}"
        for part in ("query", "key", "value", "output"):
            yield _linear(f"{name}.attention.{part}", width, width, tokens)
        yield _norm(f"{name}.attention.norm", width)
        yield _linear(f"{name}.inner", width, inner, tokens)
        yield _linear(f"{name}.outer", inner, width, tokens)
        yield _norm(f"{name}.norm", width)


def _bert_base() -> Iterator[Layer]:
    """Devlin et al., "BERT: Pre-training of deep bidirectional transformers", 2018; sequences of 128 tokens."""
    yield "embeddings.words", 30522 * 768, 0
    yield "embeddings.positions", 512 * 768, 0
    yield "embeddings.types", 2 * 768, 0
    yield _norm("embeddings.norm", 768)
    yield from _encoder(12, 768, 3072, 128)
    yield _linear("pooler", 768, 768)


def _transformer_lm() -> Iterator[Layer]:
    """Vaswani et al., "Attention is all you need", 2017: 6 layers of 512, over WikiText-2's words."""
    yield "embedding", 33278 * 512, 0
    yield from _encoder(6, 512, 2048, 128)
    yield _linear("decoder", 512, 33278, 128)


ARCHITECTURES: Final[dict[str, Callable[[], Iterator[Layer]]]] = {
    "alexnet": _alexnet,
    "vgg16": _vgg16,
    "resnet50": lambda: _resnet((3, 4, 6, 3)),
    "resnet101": lambda: _resnet((3, 4, 23, 3)),
    "inception_v3": _inception,
    "bert_base": _bert_base,
    "transformer_lm": _transformer_lm,
}
"""By name; each gives its layers in the order of the forward pass."""
