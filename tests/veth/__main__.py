"""Packets/s of the switches: ``python -m tests.veth --lanes 256``."""

import sys

from host_agent.errors import NetsumError
from netsum_common.options import parse
from tests.veth.comparison import VethOptions, run

try:
    run(parse(VethOptions, None, "python -m tests.veth", VethOptions.__doc__ or ""))
except NetsumError as fault:
    sys.exit(f"tests.veth: {fault}")
