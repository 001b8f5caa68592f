"""Who only reads admissions must not wait for a compiler to be imported."""

import subprocess
import sys

import pytest

import host_agent.wire
import netsum


def test_the_wire_format_comes_without_numba() -> None:
    check = (
        "import sys, netsum, host_agent.wire.constants\n"
        "netsum.Admission, host_agent.wire.fingerprint, netsum.MismatchError\n"
        "sys.exit('numba' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", check], check=True, timeout=400)


@pytest.mark.parametrize("package", [netsum, host_agent.wire])
def test_all_names_are_there(package: object) -> None:
    for name in package.__all__:  # type: ignore[attr-defined]
        assert getattr(package, name) is not None
    with pytest.raises(AttributeError, match="no_such_name"):
        package.no_such_name  # type: ignore[attr-defined]  # noqa: B018
