"""Collectives as iterators of passes over arrays; `Communicator` submits requests, `Schedule` begins their passes."""

from host_agent.collectives.allreduce import AllReduceRequest
from host_agent.collectives.broadcast import BarrierRequest, BroadcastRequest
from host_agent.collectives.collective import Collective, OnOverflow, Op, Request
from host_agent.collectives.quorum import Offer, Reduced, RoundRequest
from host_agent.collectives.scatter_gather import AllGatherRequest, ReduceScatterRequest

__all__ = [
    "AllGatherRequest",
    "AllReduceRequest",
    "BarrierRequest",
    "BroadcastRequest",
    "Collective",
    "Offer",
    "OnOverflow",
    "Op",
    "ReduceScatterRequest",
    "Reduced",
    "Request",
    "RoundRequest",
]
