from pathlib import Path

import pytest

BUILD = Path(__file__).resolve().parents[3] / "p4" / "build"


@pytest.fixture(scope="session")
def programs() -> dict[int, str]:
    return {lanes: str(BUILD / f"netsum_v1model_{lanes}.json") for lanes in (64, 256)}
