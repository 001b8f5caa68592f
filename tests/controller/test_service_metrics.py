"""Metrics for Prometheus."""

import urllib.request
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from controller.errors import ConfigError
from controller.service.serve import ServiceOptions
from host_agent.job_api import jobs_pb2
from host_agent.joining import join
from tests.controller.harness_switches import PROGRAM
from tests.controller.service_harness import Bench, fake_network, service_on


def test_jobs_slots_counters_workers_and_switches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(tmp_path, monkeypatch)
    options = ServiceOptions(
        fake_network(), PROGRAM.json, PROGRAM.p4info, listen=("127.0.0.1:0",), http=("127.0.0.1", 0)
    )
    with service_on(options) as service:
        url = urlsplit(service.service.http)
        with join(
            service.address, job="job", rank=0, world_size=1, slots=256, addresses=["127.0.2.3"]
        ) as member:
            bench.switch.count(member.admission.job_id, 7)
            report = jobs_pb2.Report(chunks=12, retransmissions=3, window_bytes=70_000, congested=2)
            member._stream.send(jobs_pb2.FromWorker(report=report))
            while 'netsum_worker_chunks_total{job="job",rank="0"} 12.0' not in (
                text := urllib.request.urlopen(f"{url.geturl()}metrics", timeout=30).read().decode()
            ):
                pass
        for line in (
            'netsum_jobs{state="running"} 1.0',
            'netsum_jobs{state="queued"} 0.0',
            'netsum_job_slots{job="job",switch="s1"} 256.0',
            'netsum_job_packets_total{job="job",outcome="contributions"} 7.0',
            'netsum_worker_admitted_total{job="job",rank="0"} 100.0',
            'netsum_job_moves_total{job="job"} 0.0',
            "netsum_slots_jain 1.0",
            'netsum_worker_attached{host="h3",job="job",rank="0"} 1.0',
            'netsum_worker_retransmissions_total{job="job",rank="0"} 3.0',
            'netsum_worker_window_bytes{job="job",rank="0"} 70000.0',
            'netsum_worker_congested_total{job="job",rank="0"} 2.0',
            'netsum_switch_ready{switch="s1"} 1.0',
            'netsum_transitions_total{event="admit",of="job"} 1.0',
            'netsum_transitions_total{event="join",of="member"} 1.0',
            'netsum_switch_slots_free{switch="s1"} 3840.0',
            'netsum_switch_reconnects_total{switch="s1"} 0.0',
        ):
            assert line in text.splitlines()
        taken = ServiceOptions(
            fake_network(),
            PROGRAM.json,
            PROGRAM.p4info,
            listen=("127.0.0.1:0",),
            http=("127.0.0.1", url.port or 0),
        )
        with (
            pytest.raises(ConfigError, match="--http: cannot listen on .*: Address already in use"),
            service_on(taken),
        ):
            pass
    bench.close()
