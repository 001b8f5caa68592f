"""Messages between the runner and its workers."""

import io

from netsum.conversation import read_line, write_line
from netsum.digits.task import DigitsTask


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
