"""Other programs than netsum's in the kernel: what compiles gives the packets of the embedded engine, the rest one sentence.

Of p4c's v1model samples a tenth by default; all with NETSUM_ALL_SAMPLES=1.
"""

import json
import os
import random
from pathlib import Path

import pytest

from sim.switch import Packets, Switch, UnsupportedProgramError, load_program
from sim.switch.bpf import syscall
from sim.switch.bpf.switch import XdpSwitch
from sim.switch.bpf.syscall import VerifierError
from tests.dataplane.dataplane import xdp
from tests.sim.switch.p4c_samples import compile_sample, v1model_samples
from tests.sim.switch.test_differential_samples import PACKETS, UNDEFINED, _frame

pytestmark = [pytest.mark.root, pytest.mark.skipif(xdp.why_not() is not None, reason=str(xdp.why_not()))]

PROGRAMS = Path(__file__).parent / "programs"
OUTCOMES = os.environ.get("NETSUM_XDP_OUTCOMES")
"""A file for a line of JSON for each program: what became of it."""


def _chosen() -> list[str]:
    names = [n for n in v1model_samples(with_script=False) if n not in UNDEFINED]
    return names if os.environ.get("NETSUM_ALL_SAMPLES") else names[::10]


def note(name: str, outcome: str, said: str = "") -> None:
    if OUTCOMES:
        with Path(OUTCOMES).open("a", encoding="utf-8") as file:
            file.write(json.dumps([name, outcome, said]) + "\n")


def compare(name: str, path: Path) -> None:
    program, rng = load_program(path), random.Random(name)
    try:
        kernel = XdpSwitch(program)
    except UnsupportedProgramError as error:
        note(name, "refused", "; ".join(error.features))
        pytest.skip(str(error))
    except VerifierError as error:
        note(name, "verifier", str(error))
        # Parsers with very many paths; any other finding of the verifier is a fault of the compiler.
        if not any(said in str(error) for said in ("is too large", "is too complex")):
            raise
        pytest.skip(str(error))
    try:
        engine = Switch(program)
        for _ in range(PACKETS):
            batch = Packets.of([(rng.randrange(8), _frame(rng))])
            # A frame shorter than Ethernet's header cannot leave an interface.
            expected = [packet for packet in engine.inject(batch, 0) if len(packet[1]) >= 14]
            assert list(kernel.inject(batch)) == expected
        for register in program.registers:
            assert (engine.register_view(register) == kernel.register_view(register)).all()
    finally:
        kernel.close()
    note(name, "same")


REFUSALS = {
    "arithmetic": "a calculation (mul) with 128 bits, of which BPF has at most 64",
    "externs": "a digest in action externs47",
    "hashing": "the payload in the checksum calc_8",
    "loops": "recirculation in action loops26",
    "matching": "the key h.k.ip of table I.t_ternary, which is ternary (exact, and one lpm as the last, are)",
    "sets": "the value set P.ones",
    "stacks": "the varbit field v4.options",
    "traffic": "a clone in action traffic21",
}


@pytest.mark.parametrize("name", REFUSALS)
def test_what_xdp_cannot_do_is_named_before_the_kernel_sees_it(name: str) -> None:
    with pytest.raises(UnsupportedProgramError, match=r"uses what XDP does not support: ") as refusal:
        XdpSwitch(load_program(PROGRAMS / f"{name}.json"))
    assert REFUSALS[name] in str(refusal.value)


def test_headers_behind_a_large_one() -> None:
    """The first bytes of a packet are loaded before it is parsed, those behind a large header when they are reached."""
    program, rng = load_program(PROGRAMS / "behind.json"), random.Random(1)
    kernel, engine = XdpSwitch(program), Switch(program)
    try:
        for _ in range(2000):
            frame = rng.randbytes(rng.choice([14, 64, 100, 127, 128, 160, 161, 165, 167, 168, 300]))
            batch = Packets.of([(rng.randrange(8), frame)])
            expected = [packet for packet in engine.inject(batch, 0) if len(packet[1]) >= 14]
            assert list(kernel.inject(batch)) == expected
    finally:
        kernel.close()


def test_a_full_map_is_reported_as_an_error() -> None:
    full = syscall.Map("small", syscall.HASH, 4, 4, 1)
    try:
        full.update(b"one.", b"....")
        with pytest.raises(syscall.BpfError, match="the BPF map small is full: it holds 1 entries"):
            full.update(b"two.", b"....")
    finally:
        full.close()


@pytest.mark.p4c
@pytest.mark.slow
@pytest.mark.parametrize("name", _chosen())
def test_samples(name: str, pytestconfig: pytest.Config) -> None:
    assert pytestconfig.cache is not None
    path = compile_sample(name, pytestconfig.cache.mkdir("p4c"))
    if path is None:
        pytest.skip("p4c does not compile it for BMv2")
    compare(name, path)
