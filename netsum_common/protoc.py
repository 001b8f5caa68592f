"""The compiler of protobuf stubs, in an environment of its own.

The compiler's version is part of the result. Stubs of newer ones refuse to be imported with protobuf 3.20, which
p4runtime-shell pins; those of this one import with 3.20 and with all later ones so far. It pins other versions than netsum
runs on, so it is installed in a temporary environment.
"""

import re
import subprocess
import tempfile
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

COMPILER: Final = ("grpcio-tools==1.49.1", "setuptools<81")


@contextmanager
def compiler(*packages: str) -> Iterator[Path]:
    """Yield an interpreter that has `COMPILER` and other packages, in an environment of its own."""
    with tempfile.TemporaryDirectory(prefix="netsum-protoc-") as folder:
        venv.create(folder, with_pip=True)
        python = Path(folder) / "bin" / "python"
        subprocess.run([python, "-m", "pip", "install", "--quiet", *COMPILER, *packages], check=True)
        yield python


def without_experiments(stubs: str) -> str:
    """Leave out the classes of gRPC's experimental interface, which the compiler adds for every service."""
    return re.sub(
        r"\n\n # This class is part of an EXPERIMENTAL API\.\nclass .*?(?=\n\nclass |\Z)",
        "",
        stubs,
        flags=re.S,
    )
