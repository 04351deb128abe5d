#!/usr/bin/env python3
"""The parameters of `lwe`: their rules, correctness and bytes. Standard library only.

    python3 scripts/lwe/parameters.py

Reads the two tables of docs/spec/lwe.md, *Parameters*, and recomputes every number of them from
the rules of *Parameters*, *Correctness* and *Security*. It fails if the tables break a rule, or if
a width is not the smallest integer that the rule allows.
"""

from collections import namedtuple
from math import ceil, erfc, exp, hypot, log, log2, pi, sqrt
from pathlib import Path

SPECIFICATION = Path(__file__).resolve().parents[2] / "docs" / "spec" / "lwe.md"

# L: longest code. l: entries after filling up with zeros. t: modulus of distances. q: bits of the
# modulus. n: dimension. w, h_dev, v_dev, k_dev: deviations of masked rows, headers, answers,
# openings. h, v: bits of a number of a header; of an answer and of an opening. N: columns of a
# round.
Class = namedtuple("Class", "L l t q n w h_dev v_dev k_dev h v N")


def table(head):
    """The numbers of the table of the specification that has these columns."""
    lines = SPECIFICATION.read_text(encoding="utf-8").splitlines()
    first = lines.index(f"| {' | '.join(head)} |") + 2
    for line in lines[first:]:
        if not line.startswith("|"):
            return
        yield [int(cell.replace(",", "")) for cell in line.strip("| ").split("|")]


_SHAPES = list(table(["L", "l", "t", "q", "n", "h", "v", "N", "−Q mod t"]))
_WIDTHS = list(table(["L", "σ_w", "σ_h", "σ_v", "σ_k", "τ"]))
assert [row[0] for row in _SHAPES] == [row[0] for row in _WIDTHS] and len(_SHAPES) == 5
CLASSES = [
    Class(L, l, t, q, n, *widths[1:5], h, v, N)
    for (L, l, t, q, n, h, v, N, _), widths in zip(_SHAPES, _WIDTHS)
]
SIGMA_B = 4.75  # deviation of secrets and errors of keys
R_MAX = 1 << 17  # rows of all evaluators of a key owner
TAU = [row[5] for row in _WIDTHS]
MINUS_Q = [row[8] for row in _SHAPES]  # -Q mod t
TAIL = 64  # tables of secrets, errors and masked rows go from -64 to 64
WRONG = -70  # log2 of the most likely wrong distance


def kappa(m):
    """Smooths the integers in dimension m up to 2^-64."""
    return sqrt(log(2 * m * (1 + 2.0**64)) / (2 * pi * pi))


def norm(rows, columns):
    """A matrix of Gaussians of deviation 1 has a larger norm with probability below e^-50."""
    return sqrt(rows) + sqrt(columns) + 10


def inflate(deviation):
    """A discrete Gaussian plus a Gaussian of deviation 1.2, over the discrete one."""
    return sqrt(1 + 1.44 / deviation**2)


def rounding(c):
    """Deviation of a number that loses q - h bits."""
    return 2.0 ** (c.q - c.h) / sqrt(12)


def rules(c):
    """What the rules ask for: sigma_w, sigma_b, sigma_v, sigma_k."""
    masked = 2 * sqrt(2) * kappa(c.l) * c.t
    keys = 2 * sqrt(2) * kappa(c.l + c.n)
    answers = (
        SIGMA_B * inflate(SIGMA_B) * hypot(c.w * norm(c.l, c.N), c.h_dev * norm(c.n, c.N))
    )
    rows = inflate(c.w / c.t) * c.w * norm(c.l, R_MAX)
    headers = (inflate(c.h_dev) * c.h_dev + rounding(c)) * norm(c.n, R_MAX)
    openings = SIGMA_B * hypot(rows, headers + sqrt(c.n * R_MAX) / 2)
    return masked, keys, answers, openings


def noise(c):
    """The deviation of what the server rounds away, for the largest norms of a key."""
    e = SIGMA_B * inflate(SIGMA_B) * (sqrt(c.l) + 10)
    s = SIGMA_B * inflate(SIGMA_B) * (sqrt(c.n) + 10)
    parts = {
        "answer": c.v_dev,
        "opening": c.k_dev,
        "<w, e>": c.w * e,
        "<eta, s>": c.h_dev * s,
        "<delta, s>": rounding(c) * s,
        "rounding": sqrt(2 / 12) * 2.0 ** (c.q - c.v),
    }
    return hypot(*parts.values()), parts


def norm_tail(c):
    """log2 of the probability that a norm of the rules is exceeded, by smoothing entries."""
    worst = -1000.0
    for rows, columns, deviation in (
        (c.l, c.N, SIGMA_B),
        (c.n, c.N, SIGMA_B),
        (c.l, R_MAX, c.w / c.t),
        (c.n, R_MAX, c.h_dev),
    ):
        # density of an entry plus its Gaussian, over that of a Gaussian: 1 + 2 exp(-2 pi^2 s^2)
        s = deviation**2 * 1.44 / (deviation**2 + 1.44)
        excess = rows * columns * 2 * exp(-2 * pi * pi * s)
        worst = max(worst, 1 + (excess - 50) / log(2))
    return worst


# ---- bytes


def blocks_in_rounds(c, rows, owners):
    """Rounds of an evaluator of `owners` key owners with `rows` rows each."""
    blocks = [c.N] * (rows // c.N) + ([rows % c.N] if rows % c.N else [])
    rounds, filled = 0, c.N
    for block in blocks * owners:
        if filled + block > c.N:
            rounds, filled = rounds + 1, 0
        filled += block
    return rounds


def bytes_per_distance(c, rows, clients):
    """Keys and headers count once, however many clients receive them. No seals, no frames."""
    assert rows * (clients - 1) <= R_MAX
    key, header = c.l * c.q // 8, c.n * c.h // 8
    total = 0.0
    for client in range(clients):  # evaluator of all clients after it
        owners = clients - 1 - client
        if client > 0:
            total += rows * key
        total += rows * header * blocks_in_rounds(c, rows, owners)
        total += owners * rows * rows * 2 * c.v / 8
    return total / (clients * (clients - 1) / 2 * rows * rows)


SIZES = [(500, 2), (500, 5), (2000, 2), (20000, 2), (20000, 5)]


# ---- checks


def check(c, tau, minus_q):
    big_q = 1 << c.q
    assert c.t == c.L // 2 + 1 and c.t % 2 == 1 and c.L < 2 * c.t
    assert c.L <= c.l and c.l % 256 == 0 and c.n % 256 == 0
    assert c.l * c.q % 8 == 0 and c.n * c.h % 8 == 0
    assert tau * c.t % big_q == 1 and 0 < tau < big_q
    assert -big_q % c.t == minus_q
    assert c.N == min(8192, (1 << 25) // c.L)
    masked, keys, answers, openings = rules(c)
    assert c.w == ceil(masked), (c.L, "sigma_w", masked)
    assert SIGMA_B >= keys, (c.L, "sigma_b", keys)
    assert c.v_dev == ceil(answers), (c.L, "sigma_v", answers)
    assert c.k_dev == ceil(openings), (c.L, "sigma_k", openings)
    # Samplers: bits 0 to 24 of a word for z, bits 25 to 62 for the zero test, bit 63 for the sign.
    for deviation in (c.h_dev, c.v_dev, c.k_dev):
        assert deviation.bit_length() - 2 <= 25
    # Tables: what lies beyond -64 and 64 of the narrowest distribution, per number.
    assert max(SIGMA_B, c.w / c.t) * 13 < TAIL
    # The largest product of a key in the arithmetic of the ring: |s| < 2^7, l numbers.
    assert c.q + 6 + c.l.bit_length() < 99
    # A message of keys has at least one row.
    assert c.l * c.q // 8 <= 1 << 20
    total, _ = noise(c)
    assert log2(erfc((big_q / (2 * c.t)) / total / sqrt(2))) <= WRONG
    assert norm_tail(c) <= WRONG


def decodes(c, tau, minus_q):
    """The server's formula gives d mod t for noise up to 0.86 of the limit, in integers."""
    big_q, drop = 1 << c.q, c.q - c.v
    limit = big_q // (2 * c.t)
    opening = 987654321987 % big_q
    for d in range(0, c.L + 1, max(1, c.L // 512)):
        for z in (0, limit * 86 // 100, -limit * 86 // 100):
            answer = opening + tau * d + z
            for pad in (0, big_q - 1, 123456789123 % big_q):
                v, g = (
                    (((x + pad) % big_q + (1 << (drop - 1))) >> drop) % (1 << c.v)
                    for x in (answer, opening)
                )
                y = (v - g) % (1 << c.v)
                a = minus_q * ((y * c.t + (1 << (c.v - 1))) >> c.v) % c.t
                assert a == d % c.t, (c.L, d, z, pad)


def main():
    print(f"sigma_b {SIGMA_B}, R_max {R_MAX}")
    for c, tau, minus_q in zip(CLASSES, TAU, MINUS_Q):
        check(c, tau, minus_q)
        decodes(c, tau, minus_q)
        masked, keys, answers, openings = rules(c)
        total, parts = noise(c)
        z = 2.0**c.q / (2 * c.t) / total
        print(f"\nL = {c.L}: l {c.l}, t {c.t}, q {c.q}, n {c.n}, h {c.h}, v {c.v}, N {c.N}")
        print(f"  tau {tau}, -Q mod t {minus_q}")
        print(f"  sigma_w {c.w} (rule {masked:.1f}), sigma_h {c.h_dev}, sigma_b rule {keys:.3f}")
        print(f"  sigma_v {c.v_dev} (rule {answers:.1f}), sigma_k {c.k_dev} (rule {openings:.1f})")
        print("  parts of the noise:", ", ".join(f"{k} 2^{log2(x):.1f}" for k, x in parts.items()))
        wrong, proved = log2(erfc(z / sqrt(2))), 1 - z * z / 2 / log(2)
        print(f"  noise 2^{log2(total):.2f}, limit/deviation {z:.2f}")
        print(f"  wrong 2^{wrong:.1f} (proved 2^{proved:.1f}), norms exceeded 2^{norm_tail(c):.1f}")
        print(f"  key {c.l * c.q // 8} bytes, header {c.n * c.h // 8} bytes; bytes a distance:")
        print("   ", ", ".join(f"{r} x {p}: {bytes_per_distance(c, r, p):.2f}" for r, p in SIZES))
    print("\nall rules hold")


if __name__ == "__main__":
    main()
