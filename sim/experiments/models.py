"""Models as lists of layers, and the buckets of gradients that a training step has to reduce."""

import json
from collections.abc import Iterator
from dataclasses import astuple, dataclass, replace
from pathlib import Path
from typing import Any, Final

from netsum_common.errors import unknown_keys
from sim.errors import SettingError

FILES: Final = Path(__file__).with_name("files") / "models"  # The models that come with netsum.
FIRST_BUCKET_BYTES: Final = 1 << 20
"""DDP's first bucket is small, so that reducing can begin early (torch's `_DEFAULT_FIRST_BUCKET_BYTES`)."""
_FLOAT_BYTES: Final = 4


@dataclass(frozen=True)
class ModelLayer:
    """A layer: parameters, how long its passes take, and which share of its gradient's blocks is not zero."""

    name: str
    parameters: int
    forward_ns: int
    backward_ns: int
    density: float = 1.0


@dataclass(frozen=True)
class Model:
    """A model, its layers in the order of the forward pass."""

    name: str
    layers: tuple[ModelLayer, ...]

    @property
    def parameters(self) -> int:
        """How many it has."""
        return sum(layer.parameters for layer in self.layers)

    @property
    def forward_ns(self) -> int:
        """How long a forward pass takes."""
        return sum(layer.forward_ns for layer in self.layers)

    @property
    def backward_ns(self) -> int:
        """How long a backward pass takes."""
        return sum(layer.backward_ns for layer in self.layers)

    def scaled(self, factor: float) -> "Model":
        """Return the same model with all times multiplied."""
        layers = tuple(
            replace(
                layer,
                forward_ns=round(layer.forward_ns * factor),
                backward_ns=round(layer.backward_ns * factor),
            )
            for layer in self.layers
        )
        return replace(self, layers=layers)


def shipped_models() -> list[str]:
    """Return the names of the models that come with netsum."""
    return sorted(path.stem for path in FILES.glob("*.json"))


def model_path(name_or_path: str) -> Path:
    """Return the file of a model that comes with netsum, by name, or of any other, by its path; SettingError if there is none."""
    path = Path(name_or_path)
    if path.suffix == ".json":
        return path
    if name_or_path not in (names := shipped_models()):
        raise SettingError(
            f"there is no model {name_or_path!r}: expected {', '.join(names)}, or a file's path that ends in .json"
        )
    return FILES / f"{name_or_path}.json"


def load_model(name_or_path: str) -> Model:
    """Read a model's file, which `model_path` finds.

    The file is what `write_model` writes: ``{"layers": [[name, parameters, forward_ns, backward_ns, density], …]}``, where a
    density may be left out. The times of shipped models are those of an accelerator that trains ResNet-50 at 360 samples/s, as a
    V100 does with float32, for a batch of 32 samples; three state the batch of their own.

    Raises SettingError if there is none, or the file is wrong.
    """
    path = model_path(name_or_path)
    try:
        return _read(path.stem, json.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise SettingError(f"cannot read the model {path}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError) as error:
        raise SettingError(
            f'{path}: expected {{"layers": [[name, parameters, forward_ns, backward_ns, density], …]}} ({error})'
        ) from None


def _read(name: str, found: Any) -> Model:
    if sentence := unknown_keys(found, ("about", "layers")):
        raise ValueError(sentence)
    layers = []
    for each in found["layers"]:
        title, *numbers = each
        density = numbers.pop() if len(numbers) == 4 else 1.0
        if len(numbers) != 3 or not all(isinstance(number, int) and number >= 0 for number in numbers):
            raise ValueError(f"found {each!r}")
        parameters, forward_ns, backward_ns = numbers
        if not isinstance(density, (int, float)) or not 0 <= density <= 1:
            raise ValueError(f"expected a density from 0 to 1, found {each!r}")
        layers.append(ModelLayer(str(title), parameters, forward_ns, backward_ns, density))
    if not sum(layer.parameters for layer in layers):
        raise ValueError("expected a model with parameters")
    return Model(name, tuple(layers))


def write_model(model: Model, path: Path) -> None:
    """Write a model's file."""
    layers = [list(astuple(layer)) for layer in model.layers]
    path.write_text(json.dumps({"layers": layers}, indent=1) + "\n", encoding="utf-8")


def buckets_of(model: Model, most_bytes: int) -> Iterator[tuple[int, int, float]]:
    """Iterate over the buckets that DDP makes: (bytes, ns after the backward pass began when it is whole, density).

    Gradients come in the reverse order of the layers; a bucket is closed when it holds `most_bytes` or more, the first one at
    `FIRST_BUCKET_BYTES`.
    """
    size = ready_ns = 0
    filled = 0.0
    limit = min(FIRST_BUCKET_BYTES, most_bytes)
    for layer in reversed(model.layers):
        ready_ns += layer.backward_ns
        size += layer.parameters * _FLOAT_BYTES
        filled += layer.parameters * _FLOAT_BYTES * layer.density
        if size >= limit:
            yield size, ready_ns, filled / size
            size, filled, limit = 0, 0.0, most_bytes
    if size:
        yield size, ready_ns, filled / size
