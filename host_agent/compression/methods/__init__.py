"""One file for each compressor."""
