"""Topologies of hosts, switches and links, and the testbeds that run them."""
