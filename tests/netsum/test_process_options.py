"""The options of processes, as they read them without the command."""

from dataclasses import dataclass

import pytest

from netsum_common.options import OptionError, option, parse


@dataclass(frozen=True)
class Numbers:
    """Numbers of one range each."""

    runs: int = option("Runs.", 3, within=(1, None))
    share: float = option("A share.", 0.0, within=(0.0, 1.0))
    limit: float | None = option("A limit.", within=(None, 9.0))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--runs", "0"], "--runs: expected a number of at least 1, not 0"),
        (["--share", "1.5"], "--share: expected a number between 0.0 and 1.0, not 1.5"),
        (["--share", "nan"], "--share: expected a number between 0.0 and 1.0, not nan"),
        (["--limit", "9.5"], "--limit: expected a number of at most 9.0, not 9.5"),
    ],
)
def test_a_number_out_of_its_range_is_refused_in_a_sentence(given: list[str], said: str) -> None:
    with pytest.raises(OptionError) as refused:
        parse(Numbers, given, "process", "")
    assert str(refused.value) == said


def test_numbers_at_the_ends_of_their_ranges_are_taken() -> None:
    given = ["--runs", "1", "--share", "1", "--limit", "-5"]
    assert parse(Numbers, given, "process", "") == Numbers(1, 1.0, -5.0)
