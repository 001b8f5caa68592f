"""A compiled Tofino program in the forms P4Runtime servers take; front-panel ports."""

import json
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import Message

from netsum_common.targets import TARGETS, ProgramFileError, tofino
from tests.controller.front_panel import PM_SHOW

BFRT, CONTEXT, BINARY = b'{"bfrt": 1}', b'{"context": 1}', bytes(range(256)) * 3


@pytest.fixture
def conf(tmp_path: Path) -> Path:
    """The compiler's output, moved to another folder."""
    (tmp_path / "pipe").mkdir()
    (tmp_path / "bf-rt.json").write_bytes(BFRT)
    (tmp_path / "pipe" / "context.json").write_bytes(CONTEXT)
    (tmp_path / "pipe" / "tofino.bin").write_bytes(BINARY)
    program = {
        "program-name": "netsum",
        "bfrt-config": "elsewhere/out/bf-rt.json",
        "p4_pipelines": [
            {
                "p4_pipeline_name": "pipe",
                "context": "elsewhere/out/pipe/context.json",
                "config": "elsewhere/out/pipe/tofino.bin",
                "pipe_scope": [0, 1, 300],
            }
        ],
    }
    path = tmp_path / "netsum.conf"
    path.write_text(json.dumps({"p4_devices": [{"device-id": 0, "p4_programs": [program]}]}))
    return path


def stratum_message() -> Message:
    """BfPipelineConfig, built by its .proto."""
    file = descriptor_pb2.FileDescriptorProto(name="bf_test.proto", package="bf_test", syntax="proto3")
    config = file.message_type.add(name="BfPipelineConfig")
    profile = config.nested_type.add(name="Profile")
    kinds = descriptor_pb2.FieldDescriptorProto
    one, many = kinds.LABEL_OPTIONAL, kinds.LABEL_REPEATED
    for number, (name, kind, label) in enumerate(
        [
            ("profile_name", kinds.TYPE_STRING, one),
            ("context", kinds.TYPE_BYTES, one),
            ("binary", kinds.TYPE_BYTES, one),
            ("pipe_scope", kinds.TYPE_UINT32, many),
        ],
        start=1,
    ):
        profile.field.add(name=name, number=number, type=kind, label=label)
    config.field.add(name="p4_name", number=1, type=kinds.TYPE_STRING, label=one)
    config.field.add(name="bfruntime_info", number=2, type=kinds.TYPE_BYTES, label=one)
    config.field.add(
        name="profiles",
        number=3,
        type=kinds.TYPE_MESSAGE,
        label=many,
        type_name=".bf_test.BfPipelineConfig.Profile",
    )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    described = pool.FindMessageTypeByName("bf_test.BfPipelineConfig")
    # GetPrototype is gone from protobuf 5, GetMessageClass is not in 3.20 yet.
    message_class = (
        getattr(message_factory, "GetMessageClass", None) or message_factory.MessageFactory(pool).GetPrototype
    )
    made: Message = message_class(described)()
    return made


def test_stratum_reads_what_it_is_given(conf: Path) -> None:
    message = stratum_message()
    message.ParseFromString(TARGETS["tofino"].device_config(conf))
    assert (message.p4_name, message.bfruntime_info) == ("netsum", BFRT)
    (profile,) = message.profiles
    assert (profile.profile_name, profile.context, profile.binary) == ("pipe", CONTEXT, BINARY)
    assert list(profile.pipe_scope) == [0, 1, 300]


def test_the_server_of_p4_studio_gets_name_binary_and_context(conf: Path) -> None:
    packed = tofino.for_pi(tofino.read_program(conf))
    parts = []
    while packed:
        (length,) = struct.unpack_from("<i", packed)
        parts.append(packed[4 : 4 + length])
        packed = packed[4 + length :]
    assert parts == [b"netsum", BINARY, CONTEXT]


def test_bmv2_json_is_handed_over_as_it_is(tmp_path: Path) -> None:
    program = tmp_path / "netsum.json"
    program.write_text("{}")
    assert TARGETS["bmv2"].device_config(program) == b"{}"


@pytest.mark.parametrize("gone", ["bf-rt.json", "pipe/context.json", "pipe/tofino.bin"])
def test_a_missing_file_is_named(conf: Path, gone: str) -> None:
    (conf.parent / gone).unlink()
    with pytest.raises(ProgramFileError, match=Path(gone).name):
        TARGETS["tofino"].device_config(conf)


@pytest.mark.parametrize("text", ["", "[]", '{"p4_devices": []}', '{"p4_devices": [{"p4_programs": [{}]}]}'])
def test_another_conf_is_refused(tmp_path: Path, text: str) -> None:
    conf = tmp_path / "netsum.conf"
    conf.write_text(text)
    with pytest.raises(ProgramFileError, match="does not describe a Tofino program"):
        TARGETS["tofino"].device_config(conf)


def test_the_command_packs_a_file(conf: Path) -> None:
    out = conf.parent / "packed"
    command = [
        sys.executable,
        "-m",
        "netsum_common.targets",
        str(conf),
        "--server",
        "pi",
        "--out",
        str(out),
    ]
    subprocess.run(command, check=True, timeout=60)
    assert out.read_bytes() == tofino.for_pi(tofino.read_program(conf))


def test_front_panel_ports() -> None:
    one_more = (
        "33/0 | 8/0| 64|0/64|10G    |NONE|Au|Au| NO|ENB|DWN|  NONE  |               0|               0|\n"
    )
    assert tofino.front_panel_ports(PM_SHOW + one_more) == {"1/0": 132, "5/3": 167, "33/0": 64}


def test_another_text_has_no_ports() -> None:
    with pytest.raises(ValueError, match="pm show"):
        tofino.front_panel_ports("bf-sde> ")


def test_workers_of_one_pipe_are_welcome() -> None:
    assert TARGETS["tofino"].why_apart([132, 140, 255]) is None
    assert TARGETS["bmv2"].why_apart([1, 132, 300]) is None


def test_workers_of_several_pipes_are_refused() -> None:
    assert "pipe 0: ports 12; pipe 1: ports 132, 140" in str(TARGETS["tofino"].why_apart([132, 12, 140]))
