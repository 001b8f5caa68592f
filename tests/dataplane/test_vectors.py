"""The test vectors of the Internet-Draft: they are what this suite does, and every target answers as they say."""

import itertools
import json

import pytest

from tests.dataplane.dataplane import vectors
from tests.dataplane.dataplane.embedded import EmbeddedTarget
from tests.dataplane.dataplane.frames import difference
from tests.dataplane.dataplane.target import Packet, Target

STATUS_BYTES = 8

epochs = itertools.count(1)  # The epochs of all other tests are seconds of the clock.


def packets(frames: list[list[object]]) -> list[Packet]:
    return [(int(str(port)), bytes.fromhex(str(frame))) for port, frame in frames]


def growth(event: vectors.Event) -> int:
    """Return by how many bytes an answer of an event is longer than the shortest packet."""
    if not event.get("out"):
        return 0
    sent, answers = packets(event["in"]), packets(event["out"])
    return max(len(frame) for _, frame in answers) - min(len(frame) for _, frame in sent)


def test_the_target_answers_as_the_vectors_say(target: Target) -> None:
    if target.lanes != vectors.LANES:
        pytest.skip(f"the vectors have {vectors.LANES} lanes")
    room = max(target.growth_bytes, STATUS_BYTES)
    paths = sorted(vectors.FOLDER.glob("*.json"))
    assert len(paths) == len(vectors.RECORDED)
    played = 0
    for path in paths:
        events = json.loads(path.read_text(encoding="utf-8"))["events"]
        if all(growth(event) <= room for event in events):
            play(target, path.name, events)
            played += 1
    assert played >= len(paths) - 1


def play(target: Target, name: str, events: list[vectors.Event]) -> None:
    jobs: dict[int, vectors.PlayedJob] = {}
    for number, event in enumerate(events):
        if given := event.get("admit"):
            job = vectors.PlayedJob(target, next(epochs), given)
            job.start()
            jobs[given["token"]] = job
        elif given := event.get("withdraw"):
            jobs[given["token"]].end()
        else:
            wrong = difference(target.send(packets(event["in"])), packets(event["out"]))
            assert not wrong, f"{name}, event {number}: {wrong}"
    for job in jobs.values():
        job.end()


def test_the_files_are_what_their_tests_record(target: Target) -> None:
    if type(target) is not EmbeddedTarget or target.lanes != vectors.LANES:
        pytest.skip(f"vectors are recorded from the embedded switch with {vectors.LANES} lanes")
    written = {path.name: path.read_bytes() for path in vectors.FOLDER.iterdir()}
    made = vectors.files(target, epochs)
    assert sorted(written) == sorted(made)
    stale = [name for name in made if written[name] != made[name]]
    assert not stale, "run: python -m tests.dataplane.dataplane.vectors"
