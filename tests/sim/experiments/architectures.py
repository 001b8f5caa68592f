"""The layers of the models that come with netsum; ``python -m tests.sim.experiments.architectures`` makes their files of them.

As in torchvision and the papers: parameters, and multiplications a sample needs in the forward pass; a test compares totals with
the published ones. A fourth number is the share of a gradient's blocks of 256 elements that are not zero, if less than 1.

Three models are those of OmniReduce's evaluation, as its authors' repository trains them (sands-lab/omnireduce-experiments,
commit a2bdc80), with their batches; `_SAMPLES` is the batch for which the other models' work is counted.
"""

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from sim.experiments.models import FILES

Layer = (
    tuple[str, int, int] | tuple[str, int, int, float]
)  # Name, parameters, multiplications a sample, density.
Kernel = int | tuple[int, int]  # Side, or height and width.

_CLASSES: Final = 1000
_SAMPLES: Final = 32  # A worker's batch; three models count the work of their own.
_MULTIPLICATIONS_PER_S: Final = 4.4e12
"""Rate of the accelerator that models are timed for: ResNet-50 trains at 360 samples/s, as on a V100 with float32."""


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


def _deeplight() -> Iterator[Layer]:
    """DeepLight (Deng et al., WSDM 2021): a click-through model with 39 fields of Criteo's data in embeddings of 10 elements.

    Densities are the means of eight batches of 2,048 samples in the repository's validation data: the blocks of the rows in them.
    """
    tables = {
        15_040_574: 0.000502, 10_260_959: 0.000754, 939_647: 0.004979, 285_463: 0.028282, 15_604_226: 0.000474,
        4_668_632: 0.001465, 13_476_290: 0.000564, 357_276: 0.012324, 114_916: 0.245719,  # The last: all smaller ones.
    }  # fmt: skip
    for number, (rows, density) in enumerate(tables.items()):
        yield f"embedding{number}", 10 * rows, 0, density
    batch = 2048 // _SAMPLES
    yield "pairs", 39 * 39 + 10 * 39 + 39 + 1, batch * 39 * 39 * 10
    for number, inputs in enumerate((390, 400, 400), start=1):
        yield _linear(f"linear{number}", inputs, 400, batch)
    yield "fc", 400, batch * 400


def _lstm_gbw() -> Iterator[Layer]:
    """Jozefowicz et al., "Exploring the limits of language modeling", 2016: LSTM-2048-256 over the Billion Word corpus.

    512 sequences of 20 words, with 8,192 words sampled for the softmax. A row of both embeddings is a block. Densities are the
    distinct words to be expected, from the repository's frequencies of 793,471 words and its sampler.
    """
    words, width, hidden = 793_471, 256, 2048
    tokens = 512 * 20 // _SAMPLES
    yield "encoder", words * width, 0, 0.004369
    weights = 4 * hidden * (width + hidden)
    yield "lstm", weights + 8 * hidden, weights * tokens
    yield _linear("projection", hidden, width, tokens)
    yield "decoder", words * width, (8192 + 1) * width * tokens, 0.01293
    yield "decoder.bias", words, 0, 0.6072


def _ncf() -> Iterator[Layer]:
    """He et al., "Neural collaborative filtering", 2017: NeuMF over the expanded MovieLens data of MLPerf, 1,048,576 samples.

    Its data were not read. Densities follow from 15.4 % of all rows, as the gradient's 84.6 % of
    zeros are cited from the paper, if those rows are independent: a block has four rows of 64 elements or two of 128.
    """
    rows, batch = {"user": 498_975, "item": 427_888}, (1 << 20) // _SAMPLES
    for width, density in ((64, 1 - 0.846**4), (128, 1 - 0.846**2)):
        for name, count in rows.items():
            yield f"{name}{width}", count * width, 0, density
    for inputs, outputs in ((256, 256), (256, 128), (128, 64)):
        yield _linear(f"mlp{outputs}", inputs, outputs, batch)
    yield _linear("final", 128, 1, batch)


ARCHITECTURES: Final[dict[str, Callable[[], Iterator[Layer]]]] = {
    "alexnet": _alexnet,
    "vgg16": _vgg16,
    "resnet50": lambda: _resnet((3, 4, 6, 3)),
    "resnet101": lambda: _resnet((3, 4, 23, 3)),
    "inception_v3": _inception,
    "bert_base": _bert_base,
    "transformer_lm": _transformer_lm,
    "deeplight": _deeplight,
    "lstm_gbw": _lstm_gbw,
    "ncf": _ncf,
}
"""By name; each gives its layers in the order of the forward pass."""


ABOUT: Final = {
    name: " ".join((make.__doc__ or _resnet.__doc__ or "").split()) for name, make in ARCHITECTURES.items()
}
"""The source of each."""


def text_of(name: str) -> str:
    """Return the file of a model."""
    ns = _SAMPLES / _MULTIPLICATIONS_PER_S * 1e9
    layers = [
        [layer, parameters, round(work * ns), round(2 * work * ns), *density]
        for layer, parameters, work, *density in ARCHITECTURES[name]()
    ]
    rows = ",\n".join(json.dumps(layer) for layer in layers)
    about = json.dumps(ABOUT[name], ensure_ascii=False)
    return f'{{"about": {about},\n"layers": [\n{rows}\n]}}\n'


if __name__ == "__main__":
    for each in ARCHITECTURES:
        (FILES / f"{each}.json").write_text(text_of(each), encoding="utf-8")
