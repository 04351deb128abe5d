"""Projections and codes."""
import hashlib
import math
import struct

from .primitives import chacha20, double, unhex


def normals(seed, count):
    out = []
    for x, y in struct.iter_unpack("<2Q", chacha20(seed, 16 * -(-count // 2))):
        u = ((x >> 11) + 1) * 2.0**-53
        v = (y >> 11) * 2.0**-53
        radius = math.sqrt(-2.0 * math.log(u))
        angle = 2 * math.pi * v
        out += [radius * math.cos(angle), radius * math.sin(angle)]
    return out[:count]


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


def ulps(a, b):
    return abs(a - b) / math.ulp(max(abs(a), abs(b)))


def projection_case(case):
    bits, dim = case["bits"], case["dim"]
    pi = normals(unhex(case["seed"]), bits * dim)
    first = [double(text) for text in case["first_entries"]]
    # Angles near a zero of sine or cosine lose the bits that 2πv rounds away.
    near = all(ulps(a, b) <= 4 or abs(a - b) <= 1e-15 for a, b in zip(pi, first))
    yield "first entries", near, True
    if hashlib.sha256(struct.pack(f"<{len(pi)}d", *pi)).hexdigest() != case["sha256"]:
        print(f"     note: this Python's libm differs from the reference in some last bit ({case['comment']})")
    for i, (row, held) in enumerate(zip(case["features"], case["codes"], strict=True)):
        yield f"code {i}", pack(code(pi, [double(text) for text in row])).hex(), held


CHECKS = {"projection": (projection_case, None)}
