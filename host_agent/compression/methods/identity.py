"""No compression: the baseline of every comparison."""

from torch import Tensor

from host_agent.compression.compressor import Compressor, Context, Payload, Summability


class Identity(Compressor):
    """Sends the tensor uncompressed, to show the cost of the framework itself."""

    name = "identity"
    family = "identity"
    source = ""
    use = "the cost of the hook alone"
    summability = Summability.FLOATS
    unbiased = True

    def omega(self, elements: int, workers: int = 1) -> float:
        """Nothing is lost."""
        return 0.0

    def delta(self, elements: int, workers: int = 1) -> float:
        """Nothing is lost."""
        return 1.0

    def compress(self, tensor: Tensor, shared: Tensor | None, context: Context) -> Payload:
        return (tensor,)

    def decompress(self, payload: Payload, shared: Tensor | None, context: Context, count: int = 1) -> Tensor:
        return payload[0]
