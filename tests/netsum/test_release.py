"""Parts of a release: one version everywhere, and a command that refuses before it builds."""

import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FILES = ("pyproject.toml", "CITATION.cff", "CHANGELOG.md", ".github/release.sh")


def text_of(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def test_the_version_is_the_same_everywhere() -> None:
    version = tomllib.loads(text_of("pyproject.toml"))["project"]["version"]
    assert f"\nversion: {version}\n" in text_of("CITATION.cff")
    newest = re.search(r"^## (\S+)", text_of("CHANGELOG.md"), re.MULTILINE)
    assert newest is not None
    assert newest[1] == version


@pytest.mark.parametrize(
    ("name", "before", "after", "said"),
    [
        ("CITATION.cff", r"\nversion: .*", "\nversion: 9", "CITATION.cff: expected version: "),
        ("CHANGELOG.md", r"\n## \S+", "\n## Unreleased", "as its first heading"),
        ("pyproject.toml", "$", "# not committed", "expected a clean work tree"),
    ],
)
def test_a_release_that_is_not_ready_is_refused_before_it_is_built(
    tmp_path: Path, name: str, before: str, after: str, said: str
) -> None:
    for each in FILES:
        (tmp_path / each).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / each, tmp_path / each)
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@localhost"]
    subprocess.run([*git, "init", "-q"], check=True)
    changed = re.sub(before, after, (tmp_path / name).read_text(encoding="utf-8"), count=1)
    if said != "expected a clean work tree":
        (tmp_path / name).write_text(changed, encoding="utf-8")
    subprocess.run([*git, "add", "."], check=True)
    subprocess.run([*git, "commit", "-qm", "x"], check=True)
    (tmp_path / name).write_text(changed, encoding="utf-8")
    done = subprocess.run([tmp_path / ".github/release.sh"], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert said in done.stderr
    assert not (tmp_path / "build").exists()
