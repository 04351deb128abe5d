"""Projections and codes: docs/spec/codes.md."""
import hashlib
import struct

from . import libm
from .primitives import chacha20, double, hexed, unhex


def normals(seed, count):
    words = struct.iter_unpack("<2Q", chacha20(seed, 16 * -(-count // 2)))
    return libm.normals(words)[:count]


def code(pi, row):
    """The bits of a row's code."""
    out, dim = [], len(row)
    for start in range(0, len(pi), dim):
        total = 0.0
        for p, x in zip(pi[start:start + dim], row, strict=True):
            total += p * x
        out.append(int(total >= 0))
    return out


def pack(bits):
    text = "".join(map(str, bits)) + "0" * (-len(bits) % 8)
    return int(text, 2).to_bytes(len(text) // 8, "big")


def unpack(data, bits):
    return [data[l // 8] >> 7 - l % 8 & 1 for l in range(bits)]


def unpack_rows(data, bits, rows):
    size = -(-bits // 8)
    return [unpack(data[i * size:(i + 1) * size], bits) for i in range(rows)]


def apart(a, b):
    """The bits in which two codes differ."""
    return sum(p != q for p, q in zip(a, b, strict=True))


def projection_case(case):
    bits, dim = case["bits"], case["dim"]
    pi = normals(unhex(case["seed"]), bits * dim)
    yield "first entries", [hexed(x) for x in pi[:16]], case["first_entries"]
    digest = hashlib.sha256(struct.pack(f"<{len(pi)}d", *pi)).hexdigest()
    yield "digest of all entries", digest, case["sha256"]
    for i, (row, held) in enumerate(zip(case["features"], case["codes"], strict=True)):
        yield f"code {i}", pack(code(pi, [double(text) for text in row])).hex(), held


CHECKS = {"projection": (projection_case, None)}
