"""Joining a job that a controller service has: `join` returns a `Membership`, which lasts as long as one takes part."""

from host_agent.job_api import CONTROLLER_VARIABLE
from host_agent.job_api.slot_request import BandwidthDelay, IfFull, Share, Slots
from host_agent.joining.join_errors import AbsentWorkersError, JoinError, NoSlotsError
from host_agent.joining.local import service_in_use, start_service
from host_agent.joining.membership import Membership
from host_agent.joining.request import join
from netsum_common.channel import TlsFiles

__all__ = [
    "CONTROLLER_VARIABLE",
    "AbsentWorkersError",
    "BandwidthDelay",
    "IfFull",
    "JoinError",
    "Membership",
    "NoSlotsError",
    "Share",
    "Slots",
    "TlsFiles",
    "join",
    "service_in_use",
    "start_service",
]
