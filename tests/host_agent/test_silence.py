"""One burst of PROBEs that the deadline cuts off is no silence of the switch."""

from host_agent.errors import MissingWorkersError, SwitchSilentError
from host_agent.protocol.outcome import failure_of
from host_agent.wire import Header
from host_agent.wire.constants import KIND_PROBE
from tests.host_agent.bench_core import BenchCore, status

TIMEOUT_NS = 3 * 10**9
RETRANSMISSION_NS = TIMEOUT_NS // 16


def _fail(answered_until_ns: int) -> Exception:
    """Wait for a second worker in vain; the switch answers PROBEs that are sent before a time."""
    bench = BenchCore(workers=2, slots=16, timeout_ns=TIMEOUT_NS)
    begun_ns = bench.now_ns
    bench.begin(16 * 64)
    while not bench.core.failed:
        probes = [each for each in bench.send() if Header.from_bytes(each).kind == KIND_PROBE]
        if bench.now_ns - begun_ns < answered_until_ns:
            bench.receive(*(status(probe, seen=0b01, workers=2) for probe in probes))
        bench.wait(max(bench.core.next_timer_ns() - bench.now_ns, 1))
    return failure_of(bench.core, "allreduce")


def test_the_last_burst_may_go_unanswered() -> None:
    error = _fail(TIMEOUT_NS - RETRANSMISSION_NS * 3 // 2)
    assert isinstance(error, MissingWorkersError)
    assert error.missing == (1,)


def test_a_switch_that_stopped_answering_is_named() -> None:
    assert isinstance(_fail(TIMEOUT_NS // 2), SwitchSilentError)
