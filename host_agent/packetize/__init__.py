"""Flat arrays cut into blocks of one packet's lanes, and put together again."""
