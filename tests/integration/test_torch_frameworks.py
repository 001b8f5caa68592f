"""accelerate, the Trainer of transformers, and Lightning over netsum: the recipes of docs/torch.md, beside Gloo."""

import contextlib
import importlib.util
import logging
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs PyTorch: pip install 'netsum[torch]'")

import torch
import torch.distributed as dist

from tests.integration.torch_ranks import Ranks

pytestmark = [pytest.mark.torch, pytest.mark.slow, pytest.mark.timeout(600)]

Body = Callable[[int, int, str, str, int], list[float]]
STEPS = 3


def _needs(module: str) -> pytest.MarkDecorator:
    missing = importlib.util.find_spec(module) is None
    return pytest.mark.skipif(missing, reason=f"needs {module}: pip install {module}")


def _model() -> torch.nn.Module:
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1))


def _samples() -> list[tuple[torch.Tensor, torch.Tensor]]:
    inputs = torch.randn(24, 4, generator=torch.Generator().manual_seed(2))
    return [(each, each.sum().reshape(1)) for each in inputs]


def _flat(model: torch.nn.Module) -> list[float]:
    return [float(each) for parameter in model.parameters() for each in parameter.detach().flatten()]


def _as_torchrun_sets(rank: int, world: int, port: int) -> None:
    os.environ |= {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(world),
        "LOCAL_WORLD_SIZE": str(world),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "TORCHELASTIC_RUN_ID": "test",
        "GROUP_RANK": "0",
    }


def with_accelerate(rank: int, world: int, backend: str, folder: str, port: int) -> list[float]:
    from accelerate import Accelerator

    dist.init_process_group(backend)  # before the first Accelerator
    accelerator = Accelerator(cpu=True)
    model = _model()
    model, descent, batches = accelerator.prepare(
        model,
        torch.optim.SGD(model.parameters(), 0.1),
        torch.utils.data.DataLoader(_samples(), batch_size=4),
    )
    for _, (inputs, wanted) in zip(range(STEPS), batches, strict=False):
        descent.zero_grad()
        accelerator.backward((model(inputs) - wanted).square().mean())
        descent.step()
    gathered = accelerator.gather_for_metrics(torch.tensor([rank]))
    assert gathered.tolist() == list(range(world))
    return _flat(model)


class _WithLoss(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = _model()

    def forward(self, inputs: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        outputs = self.inner(inputs)
        return {"loss": (outputs - labels).square().mean(), "logits": outputs}


def with_trainer(rank: int, world: int, backend: str, folder: str, port: int) -> list[float]:
    from transformers import Trainer, TrainingArguments

    dist.init_process_group(backend)  # before the TrainingArguments
    model = _WithLoss()
    trainer = Trainer(
        model,
        TrainingArguments(
            output_dir=folder,
            use_cpu=True,
            max_steps=STEPS,
            per_device_train_batch_size=4,
            logging_steps=1,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
        ),
        train_dataset=[{"inputs": given, "labels": wanted} for given, wanted in _samples()],
    )
    trainer.train()
    return _flat(model)


def with_lightning(rank: int, world: int, backend: str, folder: str, port: int) -> list[float]:
    import lightning
    from lightning.pytorch.strategies import DDPStrategy

    for name in ("lightning", "lightning.pytorch", "lightning.fabric"):
        logging.getLogger(name).setLevel(logging.ERROR)

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.inner = _model()

        def training_step(self, batch: Any, index: int) -> torch.Tensor:
            inputs, wanted = batch
            loss = (self.inner(inputs) - wanted).square().mean()
            # The second is an integer, which DDPStrategy averages too.
            self.log("loss", loss, sync_dist=True)
            self.log("rows", torch.tensor(len(inputs)), sync_dist=True)
            return loss

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), 0.1)

    module = Module()
    lightning.Trainer(
        accelerator="cpu",
        devices=world,
        strategy=DDPStrategy(process_group_backend=backend),
        max_steps=STEPS,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=folder,
    ).fit(module, torch.utils.data.DataLoader(_samples(), batch_size=4))
    assert dist.get_backend() == backend
    return _flat(module)


def _run(rank: int, world: int, body: Body, backend: str, folder: str, port: int) -> list[float]:
    _as_torchrun_sets(rank, world, port)
    trained = body(rank, world, backend, folder, port)
    with contextlib.suppress(ValueError):  # Lightning destroys the group by itself
        dist.destroy_process_group()
    return trained


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(with_accelerate, marks=_needs("accelerate")),
        pytest.param(with_trainer, marks=[_needs("accelerate"), _needs("transformers")]),
        pytest.param(with_lightning, marks=_needs("lightning")),
    ],
)
def test_a_framework_trains_over_netsum_as_over_gloo(body: Body, tmp_path: Path, torch_service: str) -> None:
    trained = {}
    for backend in ("netsum", "gloo"):
        store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
        environment = {"NETSUM_CONTROLLER": torch_service, "TORCHELASTIC_USE_AGENT_STORE": "True"}
        with Ranks(2, environment, backend=None) as two:
            first, second = two.run(_run, body, backend, str(tmp_path), store.port)
        assert first == second
        trained[backend] = first
    assert trained["netsum"] == pytest.approx(trained["gloo"], rel=0, abs=1e-6)
    assert trained["netsum"] != _flat(_model())
