"""Datagrams to and from the switch over UDP, in batches."""
