"""Tests of `host_agent.verification`: workers, the P4 program in the embedded engine, and a network that changes packets."""
