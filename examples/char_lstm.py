"""A character-level LSTM on the text of this project's license."""

from pathlib import Path

import torch
from harness import Task, evaluating, main
from torch import Tensor, nn

BATCH, LENGTH, WIDTH = 32, 48, 96
TEST_SHARE = 10

text = (Path(__file__).parents[1] / "LICENSE").read_text()
alphabet = sorted(set(text))
codes = torch.tensor([alphabet.index(character) for character in text])
training, test = codes[: -len(codes) // TEST_SHARE], codes[-len(codes) // TEST_SHARE :]


class CharacterModel(nn.Module):
    """Predicts the next character at every place."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(len(alphabet), WIDTH)
        self.lstm = nn.LSTM(WIDTH, WIDTH, batch_first=True)
        self.head = nn.Linear(WIDTH, len(alphabet))

    def forward(self, characters: Tensor) -> Tensor:
        """Return scores (batch, place, character)."""
        hidden, _ = self.lstm(self.embedding(characters))
        return self.head(hidden)


def batch(step: int, worker: int, workers: int) -> tuple[Tensor, Tensor]:
    """Draw a step's passages; every worker takes its part of them."""
    starts = torch.randint(len(training) - LENGTH, (BATCH,), generator=torch.Generator().manual_seed(step))
    mine = starts[worker : BATCH // workers * workers : workers]
    passages = torch.stack([training[start : start + LENGTH + 1] for start in mine])
    return passages[:, :-1], passages[:, 1:]


def loss(scores: Tensor, characters: Tensor) -> Tensor:
    """Return the mean cross entropy."""
    return nn.functional.cross_entropy(scores.flatten(0, 1), characters.flatten())


def accuracy(trained: nn.Module) -> float:
    """Return the test accuracy (0 to 1): the share of the test passage's characters that are predicted."""
    with evaluating(trained):
        predicted = trained(test[None, :-1]).argmax(2)
    return float((predicted == test[None, 1:]).float().mean())


task = Task("character LSTM", CharacterModel, batch, loss, accuracy, rate=3e-3, steps=150)

if __name__ == "__main__":
    main(task)
