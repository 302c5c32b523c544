"""Writes GGUF files tensor by tensor, so that a model need not be in memory twice.

It shares nothing with src/formats or tests/models: a reader and a writer with the same mistake
would agree.
"""

import struct

# The format's numbers of tensor types: bytes and values of a block.
F32, F16, Q4_1, Q8_0 = 0, 1, 3, 8
BLOCKS = {F32: (4, 1), F16: (2, 1), Q4_1: (20, 32), Q8_0: (34, 32)}
NAMES = {"f32": F32, "f16": F16, "q4_1": Q4_1, "q8_0": Q8_0}
ALIGNMENT = 32


def string(text):
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def tensor_bytes(kind, dims):
    block, values = BLOCKS[kind]
    assert dims[0] % values == 0, f"{dims[0]} columns are no multiple of {values}"
    count = 1
    for dim in dims:
        count *= dim
    return count // values * block


def padding(size):
    return -size % ALIGNMENT


class GgufWriter:
    def __init__(self):
        self.keys = []
        self.tensors = []

    def uint32(self, key, value):
        self.keys.append(string(key) + struct.pack("<II", 4, value))

    def float32(self, key, value):
        self.keys.append(string(key) + struct.pack("<If", 6, value))

    def string(self, key, value):
        self.keys.append(string(key) + struct.pack("<I", 8) + string(value))

    def tensor(self, name, kind, dims, produce):
        """dims[0] is the innermost; `produce()` gives the bytes when the file is written."""
        self.tensors.append((name, kind, dims, produce))

    def write(self, path):
        offset, infos = 0, []
        for name, kind, dims, _ in self.tensors:
            shape = struct.pack(f"<I{len(dims)}Q", len(dims), *dims)
            infos.append(string(name) + shape + struct.pack("<IQ", kind, offset))
            size = tensor_bytes(kind, dims)
            offset += size + padding(size)
        head = b"GGUF" + struct.pack("<IQQ", 3, len(self.tensors), len(self.keys))
        head += b"".join(self.keys) + b"".join(infos)
        with open(path, "wb") as file:
            file.write(head + bytes(padding(len(head))))
            for name, kind, dims, produce in self.tensors:
                size = tensor_bytes(kind, dims)
                data = memoryview(produce()).cast("B")
                assert len(data) == size, f"{name}: {len(data)} bytes, {size} are wanted"
                file.write(data)
                file.write(bytes(padding(size)))
