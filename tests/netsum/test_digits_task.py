"""Messages between the runner and its workers."""

import io

import numpy as np
import pytest

from netsum.allreduce.launch import read_line, write_line
from netsum.digits.dataset import load_digits
from netsum.digits.task import DigitsTask


def test_the_digits_are_those_of_scikit_learn() -> None:
    bundle = pytest.importorskip("sklearn.datasets", reason="needs scikit-learn").load_digits()
    training, testing = load_digits(7)
    order = np.random.default_rng(7).permutation(len(bundle.target))
    np.testing.assert_array_equal(np.vstack([testing.pixels, training.pixels]) * 16, bundle.data[order])
    np.testing.assert_array_equal(np.hstack([testing.digits, training.digits]), bundle.target[order])


def test_a_task_survives_its_json() -> None:
    task = DigitsTask(workers=3, hidden=(5, 6))
    assert DigitsTask.from_json(task.to_json()) == task
    assert task.widths == (64, 5, 6, 10)


def test_lines() -> None:
    stream = io.BytesIO()
    write_line(stream, event="step", step=3, loss=0.1)
    write_line(stream, event="done")
    stream.seek(0)
    assert read_line(stream) == {"event": "step", "step": 3, "loss": 0.1}
    assert read_line(stream) == {"event": "done"}
    assert read_line(stream) is None


def test_a_line_cut_off_by_the_end_of_a_process_is_the_end() -> None:
    assert read_line(io.BytesIO(b'{"event": "st')) is None
