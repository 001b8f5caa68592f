"""TLS and mutual TLS of the job API and towards a switch."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from controller.errors import ConfigError, ServiceError, SwitchUnreachableError
from controller.service.client import OperatorClient
from controller.service.serve import ServiceOptions
from controller.session import P4RuntimeSession
from host_agent.joining import JoinError, join
from netsum.aggregator import Agent, AgentPlan, AggregatorError
from netsum.cli.app import app
from netsum_common.channel import ChannelError, TlsFiles
from sim.switch.p4runtime import P4RuntimeServer
from sim.switch.ports import Chassis, UdpPorts
from tests.controller.harness_switches import PROGRAM
from tests.controller.service_harness import DEADLINE_S, Bench, fake_network, service_on

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificates")


class Authority:
    """A certificate authority of its own."""

    def __init__(self, folder: Path, name: str) -> None:
        self._folder, self._name = folder, name
        self.ca = folder / f"{name}.pem"
        self._key = folder / f"{name}-key.pem"
        _openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
                 "-subj", f"/CN={name}", "-keyout", str(self._key), "-out", str(self.ca))  # fmt: skip

    def issue(self, name: str, expired: bool = False) -> tuple[Path, Path]:
        """Return a certificate for this machine, and its key."""
        stem = self._folder / f"{self._name}-{name}"
        request, cert, key = (stem.with_suffix(end) for end in (".csr", ".crt", ".key"))
        extensions = stem.with_suffix(".ext")
        extensions.write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
        _openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", f"/CN={name}",
                 "-keyout", str(key), "-out", str(request))  # fmt: skip
        days = "-1" if expired else "2"
        _openssl("x509", "-req", "-in", str(request), "-CA", str(self.ca), "-CAkey", str(self._key),
                 "-CAcreateserial", "-days", days, "-extfile", str(extensions), "-out", str(cert))  # fmt: skip
        return cert, key


def _openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True)


@pytest.fixture(scope="module")
def authorities(tmp_path_factory: pytest.TempPathFactory) -> tuple[Authority, Authority]:
    folder = tmp_path_factory.mktemp("certificates")
    return Authority(folder, "ours"), Authority(folder, "theirs")


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    """For its switch; services are the tests' own."""
    one = Bench(tmp_path, monkeypatch)
    yield one
    one.close()


def options(tls: TlsFiles = TlsFiles(), listen: str = "127.0.0.1:0", **more: object) -> ServiceOptions:  # noqa: B008
    return ServiceOptions(fake_network(), PROGRAM.json, PROGRAM.p4info, listen=(listen,), tls=tls, **more)  # type: ignore[arg-type]


def test_tls_shuts_out_who_trusts_another_authority_or_speaks_in_clear(
    bench: Bench, authorities: tuple[Authority, Authority]
) -> None:
    ours, theirs = authorities
    cert, key = ours.issue("controller")
    with service_on(options(TlsFiles(cert=cert, key=key))) as service:
        trusting = TlsFiles(ca=ours.ca)
        with (
            OperatorClient(service.address, tls=trusting, timeout_s=DEADLINE_S) as operator,
            join(service.address, job="job", rank=0, world_size=1, addresses=["127.0.2.1"], tls=trusting,
                 timeout_s=DEADLINE_S) as member,
        ):  # fmt: skip
            assert member.host == "h1"
            assert [job.name for job in operator.jobs()] == ["job"]
        for wrong in (TlsFiles(ca=theirs.ca), TlsFiles()):
            with (
                OperatorClient(service.address, tls=wrong, timeout_s=DEADLINE_S) as operator,
                pytest.raises(ServiceError, match="no controller answers at 127.0.0.1"),
            ):
                operator.jobs()
            with pytest.raises(JoinError, match="nothing answers at 127.0.0.1"):
                join(service.address, job="job", rank=0, world_size=1, tls=wrong)


@pytest.mark.parametrize("expired", [False, True], ids=["of another authority", "expired"])
def test_a_certificate_that_is_not_accepted_is_said_to_be(
    bench: Bench, authorities: tuple[Authority, Authority], expired: bool, tmp_path: Path
) -> None:
    ours, theirs = authorities
    cert, key = ours.issue("late", expired)
    trusting = TlsFiles(ca=(ours if expired else theirs).ca)
    why = "certificate has expired" if expired else "unable to get local issuer certificate"
    said = (
        rf" answers at \S+ \(its certificate is not accepted: {why}\): check the certificates of both sides$"
    )
    with service_on(options(TlsFiles(cert=cert, key=key))) as service:
        with (
            OperatorClient(service.address, tls=trusting, timeout_s=DEADLINE_S) as operator,
            pytest.raises(ServiceError, match="no controller" + said),
        ):
            operator.jobs()
        with pytest.raises(JoinError, match="nothing" + said):
            join(service.address, job="job", rank=0, world_size=1, tls=trusting)
        agent = Agent(
            AgentPlan(service.address, "agg", "127.0.0.1", "127.0.0.1:0", tmp_path, udp_port=0, tls=trusting)
        )
        with agent, pytest.raises(AggregatorError, match="no controller" + said):
            agent.serve()


def test_mutual_tls_takes_only_certificates_of_its_authority(
    bench: Bench, authorities: tuple[Authority, Authority]
) -> None:
    ours, theirs = authorities
    cert, key = ours.issue("controller")
    with service_on(options(TlsFiles(ours.ca, cert, key))) as service:
        with OperatorClient(
            service.address, tls=TlsFiles(ours.ca, *ours.issue("operator")), timeout_s=DEADLINE_S
        ) as operator:
            assert operator.jobs() == []
        for wrong in (TlsFiles(ours.ca), TlsFiles(ours.ca, *theirs.issue("operator"))):
            with (
                OperatorClient(service.address, tls=wrong, timeout_s=DEADLINE_S) as operator,
                pytest.raises(ServiceError),
            ):
                operator.jobs()


@pytest.mark.parametrize("listen", ["0.0.0.0:0", "[::]:0", "example.org:0"])
def test_in_clear_it_listens_on_this_machine_alone(bench: Bench, listen: str) -> None:
    with (
        pytest.raises(ConfigError, match="the job API would be open to other machines"),
        service_on(options(listen=listen)),
    ):
        pass


def test_in_clear_it_listens_elsewhere_if_asked_to(bench: Bench) -> None:
    with service_on(options(listen="0.0.0.0:0", allow_remote=True)) as service:
        assert service.address.startswith("0.0.0.0:")


def test_metrics_stay_on_this_machine_too(bench: Bench) -> None:
    with (
        pytest.raises(ConfigError, match="metrics would be open"),
        service_on(options(http=("0.0.0.0", 0))),
    ):
        pass


def test_certificates_that_cannot_be_used_are_said_to_be(
    bench: Bench, tmp_path: Path, authorities: tuple[Authority, Authority]
) -> None:
    cert, _ = authorities[0].issue("controller")
    with pytest.raises(ChannelError, match="belong together"), service_on(options(TlsFiles(cert=cert))):
        pass
    with (
        pytest.raises(ChannelError, match="cannot read .*none: No such file"),
        service_on(options(TlsFiles(cert=cert, key=tmp_path / "none"))),
    ):
        pass


def test_p4runtime_with_mutual_tls(authorities: tuple[Authority, Authority], tmp_path: Path) -> None:
    ours, theirs = authorities
    server = TlsFiles(ours.ca, *ours.issue("switch")).server_credentials()
    with (
        UdpPorts([(0, 0)]) as ports,
        P4RuntimeServer(Chassis(ports), "127.0.0.1:0", credentials=server, cache_dir=tmp_path) as switch,
    ):
        session = P4RuntimeSession(
            switch.address, 1, 1, DEADLINE_S, TlsFiles(ours.ca, *ours.issue("controller"))
        )
        assert session.primary
        assert session.pipeline_cookie() == 0
        session.tear_down()
        for wrong in (
            TlsFiles(),
            TlsFiles(theirs.ca, *ours.issue("controller")),
            TlsFiles(ours.ca, *theirs.issue("controller")),
        ):
            with pytest.raises(SwitchUnreachableError):
                P4RuntimeSession(switch.address, 1, 1, 1.0, wrong)


def test_the_shell_over_mutual_tls(authorities: tuple[Authority, Authority], tmp_path: Path) -> None:
    pytest.importorskip("p4runtime_sh", reason="needs p4runtime-shell: pip install 'netsum[shell]'")
    ours, _ = authorities
    server = TlsFiles(ours.ca, *ours.issue("switch")).server_credentials()
    cert, key = map(str, ours.issue("operator"))
    with (
        UdpPorts([(0, 0)]) as ports,
        P4RuntimeServer(Chassis(ports), "127.0.0.1:0", credentials=server, cache_dir=tmp_path) as switch,
    ):
        words = ["shell", "--p4runtime", switch.address, "--tls-ca", str(ours.ca)]
        program = ["--program", str(PROGRAM.json), "--p4info", str(PROGRAM.p4info)]
        done = CliRunner().invoke(
            app,
            [*words, "--tls-cert", cert, "--tls-key", key, *program],
            input='table_entry["switch_address"].read(print)\nprint("read")\n',
        )
        assert done.exit_code == 0, done.output
        assert done.stdout == "read\n"
