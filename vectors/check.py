#!/usr/bin/env python3
"""Computes undertone.json again with the Python standard library alone."""
import hashlib
import json
import math
import pathlib
import struct
import sys

import check_paillier
import check_psm
import check_sums
import check_transfers
from check_sums import chacha20, derive, ids


def normals(seed, count):
    out = []
    for x, y in struct.iter_unpack("<2Q", chacha20(seed, 16 * -(-count // 2))):
        u = ((x >> 11) + 1) * 2.0**-53
        v = (y >> 11) * 2.0**-53
        radius = math.sqrt(-2.0 * math.log(u))
        angle = 2 * math.pi * v
        out += [radius * math.cos(angle), radius * math.sin(angle)]
    return out[:count]


def double(text):
    return struct.unpack(">d", bytes.fromhex(text))[0]


def ulps(a, b):
    return abs(a - b) / math.ulp(max(abs(a), abs(b)))


def check_derivation(case):
    seed, session = bytes.fromhex(case["seed"]), bytes.fromhex(case["session"])
    return derive(seed, session, case["purpose"], ids(*case["ids"])).hex() == case["derived"]


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
    checks = [("derivations", check_derivation, vectors["derivations"]),
              ("projections", check_projection, vectors["projections"])]
    checks += [(kind, check, vectors["sums"][kind]) for kind, check in check_sums.CHECKS.items()]
    checks.append(("psm", check_psm.check_psm, vectors["psm"]))
    checks.append(("extensions", check_transfers.check_extension, vectors["extensions"]))
    checks.append(("shade", check_transfers.check_shade, vectors["shade"]))
    checks.append(("paillier", check_paillier.check_paillier, vectors["paillier"]))
    checks.append(("phe", check_paillier.check_phe, vectors["phe"]))
    failed = 0
    for kind, check, cases in checks:
        for case in cases:
            good = check(case)
            failed += not good
            print(f"{'ok  ' if good else 'FAIL'} {kind}: {case['comment']}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
