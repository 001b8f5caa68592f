"""A small Transformer that predicts the next character of Python's standard library (the sources that came with Python)."""

import sysconfig
from pathlib import Path

import torch
from harness import Task, evaluating, main
from torch import Tensor, nn

BATCH, LENGTH, WIDTH, HEADS, LAYERS = 32, 64, 128, 4, 2
TEST_PASSAGES = 40
MODULES = ("argparse", "ast", "dataclasses", "enum", "inspect", "pathlib", "shutil", "typing")

library = Path(sysconfig.get_path("stdlib"))
sources = [
    path
    for name in MODULES
    for path in (library / f"{name}.py", library / name / "__init__.py")
    if path.is_file()
]
text = "".join(path.read_text(encoding="utf-8") for path in sources)
# Characters other than ASCII are rare: they share one code.
codes = torch.tensor([min(ord(character), 127) for character in text])
training, test = codes[: -len(codes) // 20], codes[-len(codes) // 20 :]
test_starts = torch.linspace(0, len(test) - LENGTH - 2, TEST_PASSAGES).long()


class LanguageModel(nn.Module):
    """Predicts the next character at every place from those before it."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(128, WIDTH)
        self.places = nn.Parameter(0.02 * torch.randn(LENGTH, WIDTH))
        layer = nn.TransformerEncoderLayer(WIDTH, HEADS, 4 * WIDTH, 0.0, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, 128)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(LENGTH))

    def forward(self, characters: Tensor) -> Tensor:
        """Return scores (batch, place, character)."""
        hidden = self.layers(self.embedding(characters) + self.places, self.mask, is_causal=True)
        return self.head(hidden)


def passages(of: Tensor, starts: Tensor) -> tuple[Tensor, Tensor]:
    """Return passages of a text, and for each place the character that follows."""
    both = of[starts[:, None] + torch.arange(LENGTH + 1)]
    return both[:, :-1], both[:, 1:]


def batch(step: int, worker: int, workers: int) -> tuple[Tensor, Tensor]:
    """Draw a step's passages; every worker takes its part of them."""
    starts = torch.randint(len(training) - LENGTH, (BATCH,), generator=torch.Generator().manual_seed(step))
    return passages(training, starts[worker : BATCH // workers * workers : workers])


def loss(scores: Tensor, characters: Tensor) -> Tensor:
    """Return the mean cross entropy."""
    return nn.functional.cross_entropy(scores.flatten(0, 1), characters.flatten())


def accuracy(trained: nn.Module) -> float:
    """Return the test accuracy (0 to 1): the share of the test passages' characters that are predicted."""
    characters, following = passages(test, test_starts)
    with evaluating(trained):
        return float((trained(characters).argmax(2) == following).float().mean())


task = Task("Transformer LM", LanguageModel, batch, loss, accuracy, rate=2e-3, steps=150)

if __name__ == "__main__":
    main(task)
