"""Seeing packets: a scapy layer (`netsum.packets.layer`) and a dissector for Wireshark (`netsum.packets.wireshark`)."""
