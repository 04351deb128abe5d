#!/usr/bin/env python3
"""`lwe` simulated from its specification. Standard library only: Gaussians are floating-point.

    python3 scripts/lwe/simulate.py                 L = 1024, 24 rows and 24 keys, then the toy
    python3 scripts/lwe/simulate.py 4096 16 16      another class (16384 takes minutes)
    python3 scripts/lwe/simulate.py toy             only the toy

1. The messages at real size, with a dense matrix A: wrong distances, and the deviation of the noise
   that the server rounds away, against the predicted one.
2. A toy so small that the law of this noise can be summed out. Inputs with the same distance must
   give the same law. An offset that is left out must show.
"""

import random
import sys
from bisect import bisect
from itertools import accumulate
from math import exp, floor, hypot, log2, sqrt
from operator import mul

sys.dont_write_bytecode = True
from parameters import CLASSES, MINUS_Q, SIGMA_B, TAIL, TAU, rounding

SLOT = 96  # bits for an entry of a packed row of A


class Table:
    """The discrete Gaussian on -64 to 64."""

    def __init__(self, centre, deviation):
        support = range(-TAIL, TAIL + 1)
        weights = (exp(-((u - centre) ** 2) / (2 * deviation**2)) for u in support)
        self.sums = list(accumulate(weights))

    def draw(self, rng):
        return bisect(self.sums, rng.random() * self.sums[-1]) - TAIL


def wide(rng, deviation, rho=0, t=1):
    """A wide discrete Gaussian of centre -rho/t."""
    return floor(rng.gauss(0, deviation) - rho / t + rng.random())


def codes(rng, bits, rows, keys):
    """Random codes with extreme pairs: all zeros, all ones, equal, complementary."""
    x, y = ([[rng.getrandbits(1) for _ in range(bits)] for _ in range(m)] for m in (rows, keys))
    x[0], y[0] = [0] * bits, [1] * bits
    x[1], y[1] = [1] * bits, [1] * bits
    y[2], y[3] = x[2][:], [1 - b for b in x[3]]
    return x, y


def session(number, rows, keys, seed):
    c, tau, minus_q = CLASSES[number], TAU[number], MINUS_Q[number]
    rng, big_q, t = random.Random(seed), 1 << c.q, c.t
    lose_h, lose_v = c.q - c.h, c.q - c.v
    x, y = codes(rng, c.L, rows, keys)
    pad = [0] * (c.l - c.L)
    x_full, y_full = [a + pad for a in x], [b + pad for b in y]

    # Step k: secrets and errors. Step j: masked rows and noise of headers.
    plain, of_one = Table(0, SIGMA_B), Table(2 / t, SIGMA_B)
    coset = [Table(-b / t, c.w / t) for b in (0, 1)]
    s = [[plain.draw(rng) for _ in range(c.n)] for _ in y]
    e = [[(of_one if b else plain).draw(rng) for b in row] for row in y_full]
    w = [[b + t * coset[b].draw(rng) for b in row] for row in x_full]

    # A is drawn row by row. Packed into one integer, a row is multiplied at once.
    key = [[0] * c.l for _ in y]
    products = [sum(1 << (SLOT * m + SLOT - 2) for m in range(c.n))] * rows
    for i in range(c.l):
        row = [rng.getrandbits(c.q) for _ in range(c.n)]
        packed = int.from_bytes(b"".join(a.to_bytes(SLOT // 8, "little") for a in row), "little")
        for r in range(keys):
            key[r][i] = (sum(map(mul, row, s[r])) + e[r][i] - 2 * tau * y_full[r][i]) % big_q
        for j in range(rows):
            products[j] += w[j][i] * packed
    headers = []
    for value in products:
        raw = value.to_bytes(SLOT // 8 * c.n, "little")
        header = []
        for m in range(c.n):
            slot = int.from_bytes(raw[m * SLOT // 8 : (m + 1) * SLOT // 8], "little")
            full = slot - (1 << (SLOT - 2)) + wide(rng, c.h_dev)
            header.append(((full + (1 << (lose_h - 1))) >> lose_h) % (1 << c.h))
        headers.append(header)

    def shortened(value):
        return ((value % big_q + (1 << (lose_v - 1))) >> lose_v) % (1 << c.v)

    wrong, squares, largest = 0, 0.0, 0.0
    for i in range(rows):
        for r in range(keys):
            p, ones_x, ones_y = rng.getrandbits(c.q), sum(x[i]), sum(y[r])
            rho = ones_x % t
            inner = sum(map(mul, w[i], key[r]))
            answer = shortened(inner + tau * rho + wide(rng, c.v_dev, rho, t) + p)
            rho = ones_y % t
            inner = sum(map(mul, headers[i], s[r])) << lose_h
            opening = shortened(inner - tau * rho - wide(rng, c.k_dev, rho, t) + p)
            z = (answer - opening) % (1 << c.v)
            d = minus_q * ((z * t + (1 << (c.v - 1))) >> c.v) % t
            d += t * ((d ^ ones_x ^ ones_y) & 1)
            want = sum(a != b for a, b in zip(x[i], y[r]))
            wrong += d != want
            noise = ((z << lose_v) - tau * (want % t) + big_q // 2) % big_q - big_q // 2
            noise += (want % t) / t
            squares += noise * noise
            largest = max(largest, abs(noise))
    count, limit = rows * keys, big_q / (2 * t)
    measured = sqrt(squares / count)
    predicted = hypot(
        c.v_dev,
        c.k_dev,
        c.w * SIGMA_B * sqrt(c.l),
        hypot(c.h_dev, rounding(c)) * SIGMA_B * sqrt(c.n),
        sqrt(2 / 12) * 2.0**lose_v,
    )
    print(f"L = {c.L}, {rows} rows and {keys} keys: wrong distances: {wrong} of {count}")
    print(f"  noise 2^{log2(measured):.3f}, predicted 2^{log2(predicted):.3f}", end="")
    print(f" ({measured / predicted - 1:+.1%}, sampling error {1 / sqrt(2 * count):.1%})")
    print(f"  limit/deviation {limit / measured:.2f}, largest {largest / limit:.2f} of the limit")
    assert wrong == 0


# ---- the toy: laws of t times the noise, as {integer: probability}


def normal(points):
    total = sum(points.values())
    return {k: p / total for k, p in points.items()}


def gaussian(step, offset, deviation, centre=0.0):
    """On offset + step * integers, around `centre`."""
    reach = int(8 * deviation / step) + 2
    values = (offset + step * k for k in range(-reach, reach + 1))
    return normal({v: exp(-((v - centre) ** 2) / (2 * deviation**2)) for v in values})


def convolve(*laws):
    low, out = 0, [1.0]
    for law in laws:
        first, size = min(law), max(law) - min(law) + 1
        dense = [law.get(first + k, 0.0) for k in range(size)]
        new = [0.0] * (len(out) + size - 1)
        for at, p in enumerate(out):
            if p > 1e-25:
                new[at : at + size] = [a + p * b for a, b in zip(new[at : at + size], dense)]
        low, out = low + first, new
    return {low + k: p for k, p in enumerate(out)}


def product(a, b, factor):
    out = {}
    for u, p in a.items():
        for v, q in b.items():
            out[factor * u * v] = out.get(factor * u * v, 0.0) + p * q
    return out


def law(x, y, missing=None, t=3, kappa=0.5, slack=4):
    """t times Z = <w, e - 2y/t> - eta*s + g + |x|/t + gamma + |y|/t."""
    w_dev, b_dev, h_dev = 2 * sqrt(2) * kappa * t, 2 * sqrt(2) * kappa, 2.0
    noise = slack * w_dev * b_dev
    parts = [product(gaussian(1, 0, h_dev), gaussian(1, 0, b_dev), -t)]
    for a, b in zip(x, y):
        w = gaussian(t, a, w_dev, centre=a if missing == "masked row" else 0)
        error = gaussian(t, -2 * b, t * b_dev, centre=-2 * b if missing == "error" else 0)
        parts.append(product(w, error, 1))
    for name, rho in (("answer", sum(x) % t), ("opening", sum(y) % t)):
        parts.append(gaussian(t, rho, t * noise, centre=rho if missing == name else 0))
    return convolve(*parts)


def distance(a, b):
    return sum(abs(a.get(k, 0.0) - b.get(k, 0.0)) for k in a.keys() | b.keys()) / 2


def toy():
    inputs = [((1, 0), (0, 0)), ((0, 0), (0, 1)), ((1, 1), (0, 1))]
    laws = [law(x, y) for x, y in inputs]
    worst = max(distance(a, b) for a in laws for b in laws)
    print("toy, t = 3, two numbers, three inputs with distance 1: total variation of what S sees")
    print(f"  all offsets there: at most {worst:.1e}")
    for missing in ("masked row", "error", "answer", "opening"):
        shown = max(distance(law(x, y, missing), laws[0]) for x, y in inputs)
        print(f"  without the offset of the {missing}: {shown:.1e}")
        assert shown > 1e5 * worst
    narrow = [law(x, y, kappa=0.25, slack=1) for x, y in inputs]
    print(f"  widths too small: {max(distance(a, narrow[0]) for a in narrow):.1e}")
    assert worst < 1e-10


if __name__ == "__main__":
    if sys.argv[1:] != ["toy"]:
        bits, rows, keys = map(int, sys.argv[1:4] if len(sys.argv) > 3 else (1024, 24, 24))
        session([c.L for c in CLASSES].index(bits), rows, keys, seed=1)
    toy()
