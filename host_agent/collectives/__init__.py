"""Collectives as iterators of passes over arrays; `Communicator` submits them, `Schedule` begins their passes."""

from host_agent.collectives.allreduce import plan_allreduce
from host_agent.collectives.broadcast import plan_barrier, plan_broadcast
from host_agent.collectives.collective import Collective, OnOverflow, Op
from host_agent.collectives.quorum import Offer, Reduced, plan_quorum_allreduce
from host_agent.collectives.shards import plan_all_gather, plan_reduce_scatter

__all__ = [
    "Collective",
    "Offer",
    "OnOverflow",
    "Op",
    "Reduced",
    "plan_all_gather",
    "plan_allreduce",
    "plan_barrier",
    "plan_broadcast",
    "plan_quorum_allreduce",
    "plan_reduce_scatter",
]
