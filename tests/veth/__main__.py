"""Packets/s of the switches: ``python -m tests.veth --lanes 256``."""

from netsum.cli.exits import reported_errors
from netsum_common.options import parse
from tests.veth.comparison import VethOptions, run

if __name__ == "__main__":
    with reported_errors():
        run(parse(VethOptions, None, "python -m tests.veth", VethOptions.__doc__ or ""))
