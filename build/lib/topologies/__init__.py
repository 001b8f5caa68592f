"""Testbeds: one switch and hosts on its ports, brought up and taken down whole."""
