"""Handwritten digits (1,797 images of 8 by 8 pixels), split over workers.

Source: the test part of E. Alpaydin, C. Kaynak, "Optical Recognition of Handwritten Digits", UCI Machine Learning Repository
(CC BY 4.0), as scikit-learn bundles it. It is shipped here because scikit-learn and SciPy would add 150 MB to an installation.
"""

from dataclasses import dataclass
from importlib.resources import files

import numpy as np

from netsum.digits.model import Floats, Labels

TEST_SHARE = 5  # One image in this many is kept for testing.


@dataclass(frozen=True)
class Images:
    """Images (n, 64), scaled to 0…1, and the digits they show (n,)."""

    pixels: Floats
    digits: Labels

    def __len__(self) -> int:
        """Return the number of images."""
        return len(self.digits)

    def select(self, chosen: "slice | np.ndarray") -> "Images":
        """Return the images with these indices."""
        return Images(np.ascontiguousarray(self.pixels[chosen]), self.digits[chosen])


def load_digits(seed: int) -> tuple[Images, Images]:
    """Return the training images and the test images, in an order that the seed gives."""
    with files(__package__).joinpath("digits.npz").open("rb") as file, np.load(file) as bundle:
        pixels, digits = bundle["pixels"], bundle["digits"]
    order = np.random.default_rng(seed).permutation(len(digits))
    everything = Images((pixels / 16).astype(np.float32), digits.astype(np.int64)).select(order)
    num_test = len(everything) // TEST_SHARE
    return everything.select(slice(num_test, None)), everything.select(slice(num_test))


def shard(images: Images, worker_id: int, num_workers: int) -> Images:
    """One worker's part: every `num_workers`-th image, and as many as every other worker has."""
    length = len(images) // num_workers
    return images.select(slice(worker_id, length * num_workers, num_workers))


def batch_indices(step: int, shard_length: int, batch: int, seed: int) -> "np.ndarray":
    """Choose a worker's images of a step, as indices into its shard, shape (batch,).

    A pass visits the shard in a shuffled order and drops the last, incomplete batch. All workers use the same
    order, on different images.

    Raises ValueError if the shard has fewer images than a batch.
    """
    steps_a_pass = shard_length // batch
    if steps_a_pass == 0:
        raise ValueError(f"a batch of {batch} does not fit into a shard of {shard_length} images")
    passes, place = divmod(step, steps_a_pass)
    order = np.random.default_rng((seed, passes)).permutation(shard_length)
    return order[place * batch : (place + 1) * batch]
