"""Philox against the known answers of its authors' implementation (Random123, kat_vectors)."""

import numpy as np

from sim.network.engine.dice import CHANCES, chance_of, philox


def test_known_answers() -> None:
    assert philox(0, 0, 0, 0) == 0x6627E8D5
    everything = 0xFFFFFFFF
    # All bits set; as signed numbers, which the records hold.
    assert philox(-1, everything, everything, -1) == 0x408F276D
    # The digits of pi: counter 243f6a88 85a308d3 13198a2e 03707344, key a4093822 299f31d0.
    number = 0x85A308D3243F6A88 - (1 << 64)
    assert philox(0x299F31D0A4093822, 0x03707344, 0x13198A2E, number) == 0xD16CFE09


def test_a_share_of_dice_is_that_of_its_chance() -> None:
    chance = chance_of(0.01)
    count = sum(philox(7, 0, 3, number) < chance for number in range(20_000))
    assert 150 < count < 250
    assert chance_of(1.0) == CHANCES
    assert chance_of(0.0) == 0


def test_dice_of_different_links_and_purposes_do_not_go_together() -> None:
    dice = np.array(
        [
            [philox(1, purpose, link, number) for number in range(500)]
            for purpose in (0, 1)
            for link in (0, 1)
        ],
        np.float64,
    )
    correlations = np.corrcoef(dice)
    assert np.abs(correlations - np.eye(4)).max() < 0.2
