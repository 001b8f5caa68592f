"""From a `Program` to machine code: one module per part of v1model."""
