"""The demo's model: its gradient against finite differences, its dataset's split."""

import numpy as np
import pytest

from netsum.digits.dataset import Images, batch_indices, load_digits, shard
from netsum.digits.model import MomentumDescent, Perceptron


@pytest.mark.parametrize("widths", [(5, 3), (6, 7, 4), (4, 9, 8, 3)])
def test_gradient_is_that_of_the_mean_loss(widths: tuple[int, ...]) -> None:
    generator = np.random.default_rng(7)
    model = Perceptron(widths, np.float64)
    parameters = model.initial_parameters(seed=1) + 0.05 * generator.standard_normal(model.size)
    images = generator.standard_normal((11, widths[0]))
    labels = generator.integers(widths[-1], size=11)
    _, gradient = model.gradient(parameters, images, labels)
    step = 1e-6
    for place in range(model.size):
        nudge = np.zeros(model.size)
        nudge[place] = step
        up, down = (model.gradient(parameters + each, images, labels)[0] for each in (nudge, -nudge))
        assert gradient[place] == pytest.approx((up - down) / (2 * step) / len(labels), abs=1e-8)


def test_gradient_of_a_batch_is_the_mean_of_its_parts() -> None:
    generator = np.random.default_rng(3)
    model = Perceptron((8, 16, 4), np.float64)
    parameters = model.initial_parameters(seed=2)
    images, labels = generator.standard_normal((12, 8)), generator.integers(4, size=12)
    _, whole = model.gradient(parameters, images, labels)
    parts = [model.gradient(parameters, images[part::3], labels[part::3])[1] for part in range(3)]
    np.testing.assert_allclose(np.mean(parts, axis=0), whole, atol=1e-14)


def test_momentum_descent_by_hand() -> None:
    descent = MomentumDescent(np.array([1.0, -1.0], np.float32), rate=0.5, momentum=0.5)
    descent.step(np.array([1.0, 0.0], np.float32))
    descent.step(np.array([1.0, 2.0], np.float32))
    np.testing.assert_array_equal(descent.parameters, np.array([1 - 0.5 - 0.75, -1 - 1.0], np.float32))


def test_training_in_one_process_learns_the_digits() -> None:
    train, test = load_digits(seed=0)
    model = Perceptron((64, 64, 10))
    descent = MomentumDescent(model.initial_parameters(seed=0), rate=0.1)
    for step in range(150):
        batch = train.select(batch_indices(step, len(train), 128, seed=0))
        descent.step(model.gradient(descent.parameters, batch.pixels, batch.digits)[1])
    assert model.accuracy(descent.parameters, test.pixels, test.digits) > 0.95


@pytest.mark.parametrize("num_workers", [1, 3, 4, 32])
def test_shards_are_equal_and_disjoint(num_workers: int) -> None:
    images = Images(np.arange(500, dtype=np.float32)[:, None], np.arange(500))
    shards = [shard(images, worker_id, num_workers) for worker_id in range(num_workers)]
    assert {len(part) for part in shards} == {500 // num_workers}
    assert (
        len({digit for part in shards for digit in part.digits.tolist()}) == 500 // num_workers * num_workers
    )


def test_a_pass_takes_every_image_once() -> None:
    taken = np.concatenate([batch_indices(step, 103, 10, seed=5) for step in range(10)])
    assert len(set(taken.tolist())) == 100
    assert not np.array_equal(batch_indices(0, 103, 10, seed=5), batch_indices(10, 103, 10, seed=5))


def test_a_batch_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="a batch of 20 does not fit into a shard of 10 images"):
        batch_indices(0, 10, 20, seed=0)
