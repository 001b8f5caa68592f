"""Federated averaging over a switch that learns nothing: clients share a secret, and the switch adds masked numbers.

Each client trains a model on data of its own, and the models are averaged in the network, weighted by the clients' numbers of
samples. With exact sums the models are the same, bit for bit, with and without masks. Clients on machines of their own take
NETSUM_CONTROLLER and NETSUM_SECRET from their environment in place of this file's processes and temporary secret.

python examples/private_fedavg.py
"""

import hashlib
import secrets
import sys
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

import netsum
from netsum.torch import Options

CLIENTS, ROUNDS, FEATURES, CLASSES = 3, 3, 20, 4


def own_data(client: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Make a client's samples: each client has more than the one before, and mostly of one class."""
    generator = torch.Generator().manual_seed(client)
    teacher = torch.randn(FEATURES, CLASSES, generator=torch.Generator().manual_seed(99))
    rows = torch.randn(60 * (client + 1), FEATURES, generator=generator) + teacher[:, client % CLASSES] / 4
    return rows, (rows @ teacher).argmax(1)


def client(rank: int, options: Options, folder: str) -> None:
    """Train as one client; rank 0 keeps the digest and the loss of the model of all."""
    torch.set_num_threads(1)
    private = options.private
    dist.init_process_group(
        "netsum",
        init_method=f"file://{folder}/store-{private}",
        rank=rank,
        world_size=CLIENTS,
        pg_options=options,
    )
    torch.manual_seed(rank)
    model = nn.Sequential(nn.Linear(FEATURES, 32), nn.ReLU(), nn.Linear(32, CLASSES))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    rows, classes = own_data(rank)
    with netsum.strategy("fedavg", model, optimizer, samples=len(rows), private=private) as strategy:
        for chosen in strategy.rounds(ROUNDS):
            for batch in range(0, len(rows), 20) if chosen else ():
                with strategy.step():
                    loss = nn.functional.cross_entropy(
                        model(rows[batch : batch + 20]), classes[batch : batch + 20]
                    )
                    loss.backward()
    loss = nn.functional.cross_entropy(model(rows), classes).detach()
    dist.all_reduce(loss)
    if rank == 0:
        weights = torch.cat([each.detach().reshape(-1) for each in model.parameters()])
        digest = hashlib.sha256(weights.numpy().tobytes()).hexdigest()
        Path(folder, f"model-{private}").write_text(f"{digest} loss {loss.item() / CLIENTS:.4f}")
    dist.barrier()
    dist.destroy_process_group()


def main() -> int:
    """Train without and with masks; returns 0 if the models are the same."""
    with tempfile.TemporaryDirectory() as folder:
        secret = Path(folder, "secret")
        secret.touch(0o600)
        secret.write_text(secrets.token_hex(32))
        try:
            modes = Options(exact=True), Options(exact=True, secret=str(secret), private=True)
        except netsum.NetsumError as error:  # Before minutes of training: a package may be missing.
            sys.exit(str(error))
        models = []
        for options in modes:
            torch.multiprocessing.spawn(client, (options, folder), nprocs=CLIENTS)
            models.append(Path(folder, f"model-{options.private}").read_text())
            print(f"{'masked' if options.private else 'plain':7}{models[-1]}", flush=True)
    return 0 if models[0] == models[1] else 1


if __name__ == "__main__":
    sys.exit(main())
