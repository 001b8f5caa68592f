"""Output for people: text as it is, tables that never cut a cell."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from host_agent.words import plural
from netsum.terminal import ProgressRows, count_text, digits_text, echo, echo_error, visible

HOSTILE = [
    "[/red]",
    "[bold]x",
    ":boom:",
    "a\x1b[31mred",
    "two\nlines",
    "\u202etxt",
    "[link=http://x]y[/link]",
]


def rendered(rows: ProgressRows, width: int) -> list[str]:
    screen = Console(width=width, markup=False, emoji=False, highlight=False)
    with screen.capture() as capture:
        screen.print(rows)
    return [line.rstrip() for line in capture.get().splitlines()]


@pytest.mark.parametrize("text", HOSTILE)
def test_text_from_outside_is_printed_as_it_is(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    echo(text)
    echo_error(f"no job {text}".replace("\n", " "))
    rows = ProgressRows("job", "~reason")
    rows.add(text, text)
    rows.print()
    out, err = capsys.readouterr()
    assert out.splitlines()[0] == visible(text)
    assert visible(text) in out.splitlines()[2]
    assert visible(text.replace("\n", " ")) in err
    assert "\x1b[31m" not in out + err
    assert "💥" not in out + err


def test_a_terminal_breaks_lines_between_words(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    sentence = "  to do: install the package of p4lang's from https://github.com/p4lang/behavioral-model"
    echo(sentence)
    assert capsys.readouterr().out == f"{sentence}\n"
    monkeypatch.setenv("FORCE_COLOR", "1")
    echo(sentence)
    echo_error(sentence.strip())
    out, err = capsys.readouterr()
    assert out.splitlines() == [
        "  to do: install the package",
        "  of p4lang's from",
        "  https://github.com/p4lang/behavioral-model",
    ]
    assert err.split() == ["netsum:", *sentence.split()]
    assert "package" in err.splitlines()[1]


def test_control_characters_are_shown() -> None:
    assert visible("a\x1b[31mb\nc\u202ed é ü") == r"a\x1b[31mb\nc\u202ed é ü"


@given(
    st.lists(st.lists(st.integers(0, 10**15), min_size=4, max_size=4), min_size=1, max_size=5),
    st.integers(20, 120),
)
def test_no_number_is_cut_at_any_width(numbers: list[list[int]], width: int) -> None:
    rows = ProgressRows(">chunks", ">in\nflight", ">retrans-\nmissions", ">round\ntrip")
    for row in numbers:
        rows.add(*(f"{number:,}" for number in row))
    lines = rendered(rows, max(width, 40))
    words = " ".join(lines).split()
    for row in numbers:
        assert all(f"{number:,}" in words for number in row)
    assert "…" not in " ".join(lines)


def test_optional_columns_go_first_then_rows_are_stacked() -> None:
    rows = ProgressRows("port", "?address", ">packets", ">bytes")
    rows.add("1", "10.0.0.1 to 10.0.0.254", "57,384,112", "123,456,789,012")
    assert rendered(rows, 60)[0].split() == ["port", "address", "packets", "bytes"]
    assert rendered(rows, 36)[0].split() == ["port", "packets", "bytes"]
    assert rendered(rows, 32) == [
        "1",
        "  address 10.0.0.1 to 10.0.0.254",
        "  packets 57,384,112",
        "  bytes 123,456,789,012",
    ]


def test_sentences_are_folded_and_not_cut() -> None:
    rows = ProgressRows("job", "~reason")
    reason = "64 slots requested; 0 are free at the switch s1, and the job does not wait"
    rows.add("train", reason)
    lines = rendered(rows, 50)
    assert max(map(len, lines)) <= 50
    assert " ".join(" ".join(lines[1:]).replace("train", "", 1).split()) == reason


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0"),
        (0.0123456, "0.01235"),
        (1.23456, "1.235"),
        (12.3456, "12.35"),
        (123.456, "123.5"),
        (98765.4, "98,765"),
    ],
)
def test_numbers_have_four_digits(number: float, text: str) -> None:
    assert digits_text(number) == text


def test_counts() -> None:
    assert (plural(1, "worker"), plural(2, "worker"), plural(1000, "slot")) == (
        "1 worker",
        "2 workers",
        "1,000 slots",
    )
    assert (count_text(12345.4), count_text(1.234e6), count_text(2.5e9)) == ("12,345", "1.23 M", "2.5 G")
