"""Passes are lost, repeated, delayed and reordered, and so is all else: every RESULT is exact, and every worker gets its own."""

import os
import random

import pytest

from tests.dataplane.dataplane.frames import describe
from tests.dataplane.dataplane.jobs import Job, MakeJob, lanes_of, saturating_sum
from tests.dataplane.dataplane.recirculating import RecirculatingTarget
from tests.dataplane.dataplane.target import Packet, Target

WORKERS, SLOTS, CHUNKS = 3, 2, 12
SEEDS = 300 if "NETSUM_LONG_TESTS" in os.environ else 6
STEPS = 20_000


class Schedule:
    """Workers that send unanswered packets again and again, and everything under way in one bag."""

    def __init__(self, target: RecirculatingTarget, job: Job, seed: int) -> None:
        self.target, self.job, self.source = target, job, random.Random(seed)
        self.parts = [
            [lanes_of(target, CHUNKS * worker + chunk) for worker in range(WORKERS)]
            for chunk in range(CHUNKS)
        ]
        self.results = {
            packet: (worker, chunk)
            for chunk in range(CHUNKS)
            for worker, packet in enumerate(job.results(chunk, saturating_sum(self.parts[chunk])))
        }
        self.missing = [set(range(CHUNKS)) for _ in range(WORKERS)]
        self.under_way: list[Packet] = []

    def send_what_is_missing(self) -> None:
        """Send a worker's open chunks: a chunk's slot is used again only when its result is there."""
        for worker, missing in enumerate(self.missing):
            for chunk in missing:
                if chunk - SLOTS not in missing:
                    self.under_way.append(self.job.contribution(worker, chunk, self.parts[chunk][worker]))

    def step(self) -> None:
        """Let something happen to something."""
        packet = self.under_way.pop(self.source.randrange(len(self.under_way)))
        what = self.source.random()
        if what < 0.15:
            return
        if what < 0.3:
            self.under_way.append(packet)
        left, again = self.target.step([packet])
        self.under_way += again
        for answer in left:
            assert answer in self.results, describe(answer[1])
            worker, chunk = self.results[answer]
            if self.source.random() > 0.15:
                self.missing[worker].discard(chunk)

    def run(self) -> None:
        """Go on until no worker lacks a RESULT, then until nothing is under way."""
        for _ in range(STEPS):
            if not any(self.missing) and not self.under_way:
                return
            if any(self.missing) and (not self.under_way or self.source.random() < 0.02):
                self.send_what_is_missing()
            self.step()
        raise AssertionError(f"after {STEPS} steps there are still missing {self.missing}")


@pytest.mark.parametrize("seed", range(SEEDS))
def test_every_result_is_exact_whatever_happens_between_passes(
    target: Target, make_job: MakeJob, seed: int
) -> None:
    if not isinstance(target, RecirculatingTarget):
        pytest.skip("packets pass once")
    Schedule(target, make_job(workers=WORKERS, slots=SLOTS), seed).run()
