"""Checks of results that need no trust in the network, by a linear hash that the switch adds like any lanes."""
