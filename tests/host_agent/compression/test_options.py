"""Options of compressors, memories and strategies: each wrong type, range and place is refused with one sentence."""

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", exc_type=ImportError)

import numpy as np
import torch

from docs.methods import regions, written
from host_agent.compression import Compression, CompressionState, make_compressor, make_memory
from host_agent.errors import MisuseError
from host_agent.strategies import strategy
from tests.virtual.group import groups
from tests.virtual.network import UniformLinks
from tests.virtual.world import VirtualWorld

NAN = float("nan")


def a_state(**options: Any) -> CompressionState:
    return CompressionState(make_compressor("top-k"), make_memory("none"), **options)


def a_strategy(name: str, **options: Any) -> Any:
    model = torch.nn.Linear(2, 1)
    group = groups(VirtualWorld(1, UniformLinks()))[0]
    return strategy(name, model, torch.optim.SGD(model.parameters(), 0.1), group=group, **options)


@pytest.mark.parametrize(
    ("make", "name", "options", "message"),
    [
        (make_compressor, "qsgd", {"levels": 1.5}, "compressor qsgd: levels must be an integer in [1, 127], got 1.5"),
        (make_compressor, "qsgd", {"levels": True}, "levels must be an integer in [1, 127], got True"),
        (make_compressor, "top-k", {"fraction": "0.1"}, "fraction must be a number in (0, 1], got '0.1'"),
        (make_compressor, "top-k", {"fraction": NAN}, "fraction must be a number in (0, 1], got nan"),
        (make_compressor, "powersgd", {"rank": "4"}, "rank must be an integer of at least 1, got '4'"),
        (make_compressor, "terngrad", {"clip": NAN}, "clip must be a number above 0 or None, got nan"),
        (make_compressor, "terngrad", {"clip": float("inf")}, "clip must be a number above 0 or None, got inf"),
        (make_compressor, "block-float", {"bits": 5}, "bits must be 16 or 8 or 4 or 2, got 5"),
        (make_compressor, "block-float", {"stochastic": 1}, "stochastic must be True or False, got 1"),
        (make_compressor, "terngrad", {"clip": 0}, "clip must be a number above 0 or None, got 0"),
        (make_compressor, "qsgd", {"levels": 128}, "compressor qsgd: levels must be an integer in [1, 127], got 128"),
        (make_compressor, None, {}, "unknown compressor None: expected one of identity, "),
        (make_memory, "diana", {"alpha": 2}, "memory diana: alpha must be a number in (0, 1] or None, got 2"),
        (make_memory, "momentum", {"momentum": 1}, "memory momentum: momentum must be a number in [0, 1), got 1"),
        (Compression, "top-k", {"memory": None}, "unknown memory None: expected one of none, residual"),
        (Compression, "top-k", {"seed": "1"}, "compression: seed must be an integer, got '1'"),
        (Compression, None, {}, "unknown compressor None: expected one of identity, "),
        (a_strategy, "diloco", {"sync_every": 2.5}, "strategy diloco: sync_every must be an integer of at least 1, got 2.5"),
        (a_strategy, "diloco", {"sync_every": "5"}, "strategy diloco: sync_every must be an integer of at least 1, got '5'"),
        (a_strategy, "diloco", {"outer_rate": NAN}, "outer_rate must be a number above 0, got nan"),
        (a_strategy, "downpour", {"push_every": 0}, "strategy downpour: push_every must be an integer of at least 1, got 0"),
        (a_strategy, "stale-synchronous", {"push_every": 1.5}, "push_every must be an integer of at least 1, got 1.5"),
        (make_compressor, "terngrad", {"clip": "2.5"}, "compressor terngrad: clip must be a number above 0 or None, got '2.5'"),
        (a_strategy, "fedavg", {"samples": 2.5}, "samples must be an integer of at least 1, got 2.5"),
        (a_strategy, "dynamic-averaging", {"threshold": NAN}, "threshold must be a number of at least 0, got nan"),
        (a_strategy, "synchronous", {"scale_rate": "no"}, "scale_rate must be True or False, got 'no'"),
        (a_strategy, "synchronous", {"warmup_steps": 5}, "warmup_steps has no effect without scale_rate=True"),
        (a_strategy, "synchronous", {"memory": "residual"}, "it has no effect without compression"),
        (a_strategy, "synchronous", {"compression": "top-k", "memory": None}, "memory must be a name or a Memory, got None"),
        (a_strategy, "synchronous", {"compression": 3}, "compression must be a name or a Compressor or None, got 3"),
        (a_strategy, "codistillation", {"share": "all"}, "share must be 'checkpoints' or 'predictions', got 'all'"),
    ],
)  # fmt: skip
def test_a_wrong_option_is_refused_with_one_sentence(
    make: Any, name: Any, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(MisuseError) as refusal:
        make(name, **options)
    assert message in str(refusal.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"granularity": "layers"}, "compression: granularity must be 'layer' or 'bucket' or 'model', got 'layers'"),
        ({"block": 8, "granularity": "model"}, "block divides layers, so it has no effect with granularity 'model'"),
        ({"block": 0}, "block must be an integer of at least 1 or None, got 0"),
        ({"skip_below": 1.5}, "skip_below must be an integer of at least 0, got 1.5"),
        ({"measure_error": "no"}, "measure_error must be True or False, got 'no'"),
    ],
)  # fmt: skip
def test_a_wrong_option_of_a_hook_is_refused_with_one_sentence(options: dict[str, Any], message: str) -> None:
    with pytest.raises(MisuseError) as refusal:
        a_state(**options)
    assert message in str(refusal.value)


def test_numbers_of_numpy_and_whole_numbers_for_fractions_are_taken() -> None:
    assert make_compressor("qsgd", levels=np.int64(3)).options == {"levels": 3}
    assert make_compressor("top-k", fraction=1).options == {"fraction": 1}
    assert make_compressor("terngrad").options == {"clip": None}
    assert a_strategy("diloco", sync_every=np.int64(3)).options["sync_every"] == 3


@pytest.mark.parametrize("page", regions())
def test_the_documentation_has_type_range_and_default_of_every_option(page: str) -> None:
    text = (Path(__file__).parents[3] / "docs" / f"{page}.md").read_text(encoding="utf-8")
    assert text == written(page, text), "run: python -m docs.methods"
