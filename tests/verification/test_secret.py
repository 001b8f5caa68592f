"""Secrets: errors in one sentence before any data is sent, and keys that are never used twice."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from host_agent.collectives import AllReduceRequest
from host_agent.communicator import Communicator
from host_agent.errors import (
    BrokenCommunicatorError,
    MisuseError,
    SecretError,
    SecretMismatchError,
    VerificationError,
)
from host_agent.torch.options import Options
from host_agent.verification.keys import PUBLIC, make_keys
from host_agent.verification.secret import Session, read_secret
from host_agent.verification.trust import Trust
from host_agent.verification.verified import VerifiedRequest
from tests.integration.simulated.loopback import LoopbackSwitch, on_all
from tests.integration.simulated.star import star_switch
from tests.verification.hostile import Datagrams, HostileStar

SECRET = bytes(range(32))
WORKERS = 3


@pytest.fixture
def secret_file(tmp_path: Path) -> Path:
    path = tmp_path / "secret"
    path.write_bytes(SECRET.hex().encode() + b"\n")
    path.chmod(0o600)
    return path


def test_a_file_an_environment_variable_and_bytes_give_the_same_key(
    secret_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = SECRET.hex().encode()
    assert read_secret(content) == read_secret(secret_file) == read_secret(str(secret_file))
    monkeypatch.setenv("NETSUM_SECRET", str(secret_file))
    assert Trust.from_environment().secret == str(secret_file)
    assert read_secret(SECRET) != read_secret(content)


def test_a_secret_that_cannot_be_used_is_refused_in_one_sentence(secret_file: Path) -> None:
    with pytest.raises(
        SecretError, match="has 5 bytes, expected at least 32: make one by openssl rand -hex 32"
    ):
        read_secret(b"short")
    with pytest.raises(SecretError, match="cannot be read from .*nowhere: No such file"):
        read_secret(secret_file.with_name("nowhere"))
    with pytest.raises(SecretError, match="cannot be read from"):
        read_secret(secret_file.parent)
    secret_file.chmod(0o644)
    with pytest.raises(SecretError, match="is open to every user of this machine: chmod o-rw"):
        read_secret(secret_file)
    secret_file.chmod(0o640)
    read_secret(secret_file)
    with pytest.raises(SecretError, match="has 5 bytes"):
        Trust(secret=b"short").verifier()


def test_no_text_has_the_secret(secret_file: Path) -> None:
    for each in (Trust(secret=SECRET), Options(secret=str(secret_file)), Session(read_secret(SECRET))):
        assert SECRET.hex() not in repr(each)
        assert repr(SECRET) not in repr(each)
    with pytest.raises(SecretError) as refused:
        read_secret(b"0123456789abcdef")
    assert "0123456789" not in str(refused.value)


@pytest.fixture(scope="module")
def switch() -> Iterator[LoopbackSwitch]:
    with LoopbackSwitch(64, WORKERS) as running:
        yield running


def joined(switch: LoopbackSwitch, trusts: list[Trust]) -> list[Communicator]:
    return [
        Communicator(admission, bind=address, timeout_s=30.0, trust=trust)
        for (admission, address), trust in zip(switch.start_job(), trusts, strict=True)
    ]


def close(communicators: list[Communicator]) -> None:
    for each in communicators:
        each.close()


@pytest.mark.parametrize(
    "trust",
    [
        Trust(True),
        Trust(secret=SECRET),
        Trust(True, on_corruption="retry"),
        Trust(secret=SECRET, private=True),
    ],
)
def test_communicators_check_every_collective(switch: LoopbackSwitch, trust: Trust) -> None:
    if trust.private:
        pytest.importorskip("cryptography")
    communicators = joined(switch, [trust] * WORKERS)
    array = np.arange(100_000, dtype=np.float32)

    def run(communicator: Communicator) -> Any:
        futures = [communicator.allreduce_async(array) for _ in range(3)]
        total = communicator.allreduce(array, exact=True)
        gathered = communicator.all_gather(array[:10])
        communicator.barrier()
        assert all((future.result(30) == total).all() for future in futures)
        assert (gathered == array[:10]).all()
        return communicator.total_stats

    for statistics in on_all(communicators, run):
        assert (statistics.verified, statistics.corrupted) == (6, 0), statistics
    close(communicators)


def test_one_call_can_be_checked_where_others_are_not(switch: LoopbackSwitch) -> None:
    communicators = joined(switch, [Trust()] * WORKERS)
    array = np.ones(1000, np.float32)

    def run(communicator: Communicator) -> Any:
        communicator.allreduce(array)
        assert communicator.stats.verified == 0
        communicator.allreduce(array, verify=True)
        return communicator.stats.verified

    assert on_all(communicators, run) == [1] * WORKERS
    close(communicators)
    communicators = joined(switch, [Trust(secret=SECRET)] * WORKERS)
    with pytest.raises(MisuseError, match="a communicator with a secret checks every result"):
        communicators[0].allreduce(array, verify=False)
    close(communicators)


def test_secrets_that_differ_name_the_rank_before_any_data(switch: LoopbackSwitch) -> None:
    communicators = joined(switch, [Trust(secret=SECRET), Trust(secret=SECRET), Trust(secret=SECRET[::-1])])
    errors = on_all(communicators, lambda each: each.allreduce(np.ones(100, np.float32)))
    assert all(isinstance(error, SecretMismatchError) for error in errors), errors
    assert str(errors[0]).startswith(
        "worker 0 cannot verify the key exchange of worker 2: the secrets differ"
    )
    assert str(errors[2]).startswith("worker 2 cannot verify the key exchange of workers 0, 1: ")
    with pytest.raises(BrokenCommunicatorError, match="the secrets differ"):
        communicators[0].barrier()
    close(communicators)
    communicators = joined(switch, [Trust(secret=SECRET), Trust(secret=SECRET), Trust(secret=SECRET[::-1])])
    futures = [each.barrier_async() for each in communicators]
    for future in futures:
        assert isinstance(future.exception(30), SecretMismatchError)
    close(communicators)


def test_the_environment_chooses(monkeypatch: pytest.MonkeyPatch, secret_file: Path) -> None:
    monkeypatch.setenv("NETSUM_VERIFY", "1")
    assert Trust.from_environment() == Trust(True)
    assert Options.from_environment().trust == Trust(True)
    monkeypatch.setenv("NETSUM_SCALE", "8.5")
    with pytest.raises(
        MisuseError, match=r"^scale: expected a positive number, with private=True, got 8\.5$"
    ):
        Options.from_environment()
    monkeypatch.delenv("NETSUM_SCALE")
    monkeypatch.setenv("NETSUM_SECRET", str(secret_file))
    monkeypatch.setenv("NETSUM_ON_CORRUPTION", "retry")
    assert Options.from_environment().trust == Trust(True, str(secret_file), "retry")
    monkeypatch.setenv("NETSUM_VERIFY", "yes")
    for reader in (Trust, Options):
        with pytest.raises(MisuseError, match="^NETSUM_VERIFY: expected 0 or 1, got 'yes'$"):
            reader.from_environment()
    with pytest.raises(MisuseError, match="^verify must be False or True, got 2$"):
        Options(verify=2)  # type: ignore[arg-type]
    secret_file.chmod(0o666)
    with pytest.raises(SecretError, match="is open to every user"):
        Options(secret=str(secret_file))


def run_recorded(records: list[bytes] | None, replay: list[bytes] | None, seed: int = 1) -> list[Any]:
    """Sum under a secret; keep the packets that come down, or replay those of an earlier run in place of them."""

    def tamper(datagrams: Datagrams, way: str) -> None:
        for row in datagrams.with_lanes if way == "down" else ():
            if records is not None:
                records.append(datagrams.lanes[row].tobytes())
            if replay:
                datagrams.lanes[row] = np.frombuffer(replay.pop(0), ">u4")

    star = HostileStar(star_switch(64), WORKERS)
    arrays = [np.full(300, rank + seed, np.float32) for rank in range(WORKERS)]
    plans = [[VerifiedRequest(AllReduceRequest(each), Session(read_secret(SECRET)))] for each in arrays]
    return [outcomes[0] for outcomes in star.run(plans, tamper)]


def test_a_run_of_another_epoch_cannot_be_replayed() -> None:
    recorded: list[bytes] = []
    assert not any(outcome.error for outcome in run_recorded(recorded, None))
    whole = run_recorded(None, list(recorded), seed=2)
    assert all(isinstance(outcome.error, SecretMismatchError) for outcome in whole), [o.error for o in whole]
    after_the_exchange = run_recorded(None, recorded[WORKERS:], seed=2)
    errors = [outcome.error for outcome in after_the_exchange]
    assert all(isinstance(error, SecretMismatchError | VerificationError) for error in errors), errors


def test_the_key_of_a_communicator_is_new_although_the_epoch_repeats() -> None:
    keys = []
    for _ in range(2):
        sessions = [Session(read_secret(SECRET)) for _ in range(WORKERS)]
        star = HostileStar(star_switch(64), WORKERS)
        star.run([[VerifiedRequest(AllReduceRequest(np.ones(9, np.float32)), each)] for each in sessions])
        assert len({each.key for each in sessions}) == 1
        keys.append(sessions[0].key)
    assert keys[0] != keys[1]
    assert PUBLIC not in keys


def test_pads_cancel_over_the_workers_and_differ_for_every_tag() -> None:
    for workers in (1, 2, 5):
        seen = set()
        for number in range(4):
            for attempt in range(2):
                pads = [
                    make_keys(b"k" * 32, rank, workers, 64).pads(number, attempt, 3)
                    for rank in range(workers)
                ]
                for segment in range(3):
                    total = sum(own[segment] for own, _ in pads) % ((1 << 61) - 1)
                    assert {every[segment] for _, every in pads} == {total}
                    seen |= {own[segment] for own, _ in pads} | {total}
        assert len(seen) == 24 * (workers + 1 if workers > 1 else 1)


def test_unreadable_for_its_mode(secret_file: Path) -> None:
    secret_file.chmod(0)
    if os.access(secret_file, os.R_OK):
        pytest.skip("root reads every file")
    with pytest.raises(SecretError, match="Permission denied"):
        read_secret(secret_file)
