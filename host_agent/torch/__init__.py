"""The torch.distributed backend ``netsum``.

`netsum.torch` registers the backend. The modules of this package need PyTorch and load with the first process group.
"""
