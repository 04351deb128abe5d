#!/usr/bin/env python3
"""Computes undertone.json again with the Python standard library alone."""
import hashlib
import hmac
import json
import math
import pathlib
import struct
import sys


def chacha20_blocks(key):
    """The ChaCha20 key stream, nonce and 64-bit counter zero, block by block."""
    constants = (0x61707865, 0x3320646E, 0x79622D32, 0x6B206574)
    words = struct.unpack("<8I", key)
    rounds = [(0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15),
              (0, 5, 10, 15), (1, 6, 11, 12), (2, 7, 8, 13), (3, 4, 9, 14)]
    counter = 0
    while True:
        start = [*constants, *words, counter & 0xFFFFFFFF, counter >> 32, 0, 0]
        x = start[:]
        for _ in range(10):
            for a, b, c, d in rounds:
                for p, q, r, turn in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
                    x[p] = (x[p] + x[q]) & 0xFFFFFFFF
                    v = x[r] ^ x[p]
                    x[r] = (v << turn | v >> (32 - turn)) & 0xFFFFFFFF
        yield struct.pack("<16I", *((a + b) & 0xFFFFFFFF for a, b in zip(x, start)))
        counter += 1


def normals(seed, count):
    out = []
    for block in chacha20_blocks(seed):
        for x, y in struct.iter_unpack("<2Q", block):
            u = ((x >> 11) + 1) * 2.0**-53
            v = (y >> 11) * 2.0**-53
            radius = math.sqrt(-2.0 * math.log(u))
            angle = 2 * math.pi * v
            out += [radius * math.cos(angle), radius * math.sin(angle)]
        if len(out) >= count:
            return out[:count]


def hkdf(seed, info):
    key = hmac.new(bytes(32), seed, hashlib.sha256).digest()
    return hmac.new(key, info + b"\x01", hashlib.sha256).digest()


def double(text):
    return struct.unpack(">d", bytes.fromhex(text))[0]


def ulps(a, b):
    return abs(a - b) / math.ulp(max(abs(a), abs(b)))


def check_derivation(case):
    info = b"undertone/v1/" + case["purpose"].encode() + bytes.fromhex(case["session"])
    info += b"".join(struct.pack("<I", i) for i in case["ids"])
    return hkdf(bytes.fromhex(case["seed"]), info).hex() == case["derived"]


def check_projection(case):
    bits, dim = case["bits"], case["dim"]
    pi = normals(bytes.fromhex(case["seed"]), bits * dim)
    first = [double(text) for text in case["first_entries"]]
    # Angles near a zero of sine or cosine lose the bits that 2πv rounds away.
    if any(ulps(a, b) > 4 and abs(a - b) > 1e-15 for a, b in zip(pi, first)):
        return False
    digest = hashlib.sha256(struct.pack(f"<{len(pi)}d", *pi)).hexdigest()
    if digest != case["sha256"]:
        print(f"  note: this Python's libm differs from the reference in some last bit ({case['comment']})")
    for row, code in zip(case["features"], case["codes"], strict=True):
        v = [double(text) for text in row]
        text = ""
        for l in range(bits):
            total = 0.0
            for p, x in zip(pi[l * dim:(l + 1) * dim], v, strict=True):
                total += p * x
            text += "1" if total >= 0 else "0"
        text += "0" * (-bits % 8)
        if bytes(int(text[i:i + 8], 2) for i in range(0, len(text), 8)).hex() != code:
            return False
    return True


def main():
    path = pathlib.Path(__file__).with_name("undertone.json")
    vectors = json.loads(path.read_text())
    failed = 0
    for kind, check in (("derivations", check_derivation), ("projections", check_projection)):
        for case in vectors[kind]:
            good = check(case)
            failed += not good
            print(f"{'ok  ' if good else 'FAIL'} {kind}: {case['comment']}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
