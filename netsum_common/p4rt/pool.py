"""The descriptor pool of netsum's P4Runtime messages.

Python keeps one default pool per process and refuses two files that define the same message. Another package's stubs of
P4Runtime or of ``google.rpc``, of whatever version, would therefore exclude ours; in a pool of its own each has its types.
"""

from google.protobuf import any_pb2
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.internal import builder

POOL = DescriptorPool()

# P4Runtime's messages refer to google.protobuf.Any, which must be in the same pool, with a class.
_ANY = POOL.AddSerializedFile(any_pb2.DESCRIPTOR.serialized_pb) or POOL.FindFileByName(
    any_pb2.DESCRIPTOR.name
)
_CLASSES: dict[str, object] = {}
builder.BuildMessageAndEnumDescriptors(_ANY, _CLASSES)
builder.BuildTopDescriptorsAndMessages(_ANY, __name__, _CLASSES)
