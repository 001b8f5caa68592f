"""The torch.distributed backend ``netsum``.

`netsum.torch` registers it; what is imported here needs PyTorch and is loaded when the first process group is made.
"""
