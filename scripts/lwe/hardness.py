#!/usr/bin/env python3
"""Hardness of the LWE instances behind `lwe`, from published formulas. Standard library only.

    python3 scripts/lwe/hardness.py            all instances, two minutes
    python3 scripts/lwe/hardness.py C-1024     one instance

Each class of the parameter table has two instances. The proof halves their deviations:

    C: c = A s + e       dimension n, l samples, secret and error of deviation sigma_b / 2
    H: H = w (tA) + eta  dimension l, n samples, secret sigma_w / 2t, error sigma_h / 2

Both are modulo 2^q. The structure of the ring is ignored, as is usual.

Lattice reduction
    Chen (2013): the root Hermite factor delta(beta). Geometric series assumption (GSA): the
    logarithms of the Gram-Schmidt norms of a reduced basis lie on a line of slope -2 log delta.
Attacks
    usvp         Alkim, Ducas, Poeppelmann, Schwabe (2016), the "2016 estimate"; the secret is
                 scaled (Bai, Galbraith 2014); the best number of samples.
    bdd          BKZ, then one sieve of a larger dimension in the last block (Liu, Nguyen 2013).
    dual hybrid  Albrecht (2017), Guo and Johansson (2021), MATZOV (2022): short dual vectors from
                 a sieve; k numbers of the secret guessed; f numbers by a Fourier transform modulo
                 p after modulus switching. Ducas and Pulles (2023) dispute its heuristics.
    coded        The same with the best conceivable quantiser in the place of modulus switching: a
                 bound for variants with codes (Carrier, Shen, Tillich 2022). Decoding is free.
Costs
    classical, quantum   one sieve: 2^(0.292 beta), 2^(0.265 beta)   (core-SVP)
    gates                MATZOV (2022): list decoding, dimensions for free, progressive BKZ
Not looked at: combinatorial and algebraic attacks; secrets are too wide and samples too few.
"""

import math
import sys
from functools import lru_cache
from math import e, exp, floor, log, log2, pi, sqrt

sys.dont_write_bytecode = True
from parameters import CLASSES, SIGMA_B

SMALLEST, LARGEST = 60, 2600  # block sizes that are searched
WANTED = 135  # bits, classical

# Two other implementations of ours gave these figures at 0.292 beta: (usvp, dual hybrid) of the
# first, then of the second. Their dual hybrid figures are higher for these reasons. The first tried
# p up to 8, and the second p up to 5. The first took a number of samples that is not the best one
# where errors are much wider than secrets (H-1024). The figures are for the error in brackets.
OTHERS = {
    ("C-1024", 2.375): ((152.7, 151.3), (153.3, 154.2)),
    ("C-2048", 2.375): ((139.9, 139.0), (139.9, 141.3)),
    ("C-4096", 2.375): ((155.6, 154.8), (155.6, 156.5)),
    ("C-8192", 2.375): ((145.4, 144.5), (145.4, 146.2)),
    ("C-16384", 2.375): ((136.1, 135.5), (136.1, 137.7)),
    ("H-1024", 1024): ((135.2, 136.1), (135.2, 136.7)),
    ("H-2048", 64): ((201.5, 198.8), (201.8, 203.1)),
}
NONE = ((None, None), (None, None))


class Instance:
    """LWE: `dimension`, `samples`, modulus 2^q, deviations of secret and error."""

    def __init__(self, name, dimension, samples, q, secret, error):
        self.name, self.dimension, self.samples = name, dimension, samples
        self.q, self.secret, self.error = q, secret, error
        self.ratio = log2(error / secret)

    def __str__(self):
        return (
            f"dimension {self.dimension}, {self.samples} samples, modulus 2^{self.q}, "
            f"secret {self.secret:.3f}, error {self.error:.3f}"
        )


def instances():
    for c in CLASSES:
        yield Instance(f"C-{c.L}", c.n, c.l, c.q, SIGMA_B / 2, SIGMA_B / 2)
        yield Instance(f"H-{c.L}", c.l, c.n, c.q, c.w / (2 * c.t), c.h_dev / 2)


# ---- lattice reduction


@lru_cache(None)
def log_delta(beta):
    """log2 of the root Hermite factor of BKZ with blocks of `beta`."""
    return log2(beta / (2 * pi * e) * (pi * beta) ** (1 / beta)) / (2 * (beta - 1))


def log_gh(dimension):
    """log2 of the Gaussian heuristic for volume 1."""
    return (math.lgamma(dimension / 2 + 1) / dimension - log(pi) / 2) / log(2)


SIEVE, OFFSET, PROGRESSIVE = 0.29613500308205365, 20.387885985467914, 5.46  # MATZOV (2022)


def free(beta):
    """Dimensions for free (Ducas 2018)."""
    return max(0.0, beta * log(4 / 3) / log(beta / (2 * pi * e)))


def sieve_gates(dimension):
    return log2(PROGRESSIVE) + SIEVE * dimension + OFFSET


def bkz_cost(model, beta, d):
    """log2 of the cost of BKZ-`beta` in dimension `d`."""
    if model == "gates":
        return log2(PROGRESSIVE * max(1, d - beta)) + sieve_gates(beta - free(beta))
    return {"classical": 0.292, "quantum": 0.265}[model] * beta


def add(*logs):
    """log2 of the sum of powers of two."""
    top = max(logs)
    return top + log2(sum(2.0 ** (x - top) for x in logs))


# ---- primal attacks


def primal_volume(inst, beta, m):
    """(d, log2 of vol^(1/d)) of Bai and Galbraith's lattice with m samples."""
    d = m + inst.dimension + 1
    return d, (m * inst.q + inst.dimension * inst.ratio) / d


def best_samples(inst, beta):
    """The m that makes the last block's norms largest: the zero of the derivative, cut off."""
    n, q = inst.dimension, inst.q
    d = sqrt((q * (n + 1) - n * inst.ratio) / log_delta(beta))
    return max(1, min(inst.samples, round(d) - n - 1))


def usvp(inst):
    """The smallest beta that finds the secret, and m."""
    for beta in range(SMALLEST, LARGEST):
        m = best_samples(inst, beta)
        d, volume = primal_volume(inst, beta, m)
        reach = (2 * beta - d - 1) * log_delta(beta) + volume
        if log2(inst.error) + log2(beta) / 2 <= reach:
            return beta, m
    return LARGEST, inst.samples


def bdd_gates(inst):
    """min over beta of BKZ-beta and one sieve of the last block, in gates."""
    best = (1e9,)
    top = usvp(inst)[0]
    if top == LARGEST:
        return best
    for beta in range(max(SMALLEST, top - 60), top + 1):
        m = best_samples(inst, beta)
        d, volume = primal_volume(inst, beta, m)
        for eta in range(beta, beta + 160):
            # mean of the last eta logarithms of the GSA
            block = (eta - d) * log_delta(beta) + volume
            if log2(inst.error) + log2(eta) / 2 <= log_gh(eta) + block:
                cost = add(bkz_cost("gates", beta, d), sieve_gates(eta - free(eta)))
                best = min(best, (cost, beta, eta, m))
                break
    return best


# ---- dual hybrid


def entropy(sigma):
    """Bits of entropy of a number of the secret."""
    return log2(sigma * sqrt(2 * pi * e))


@lru_cache(None)
def dual_dimension(inst, beta, rest):
    """The best dimension m + rest of the dual lattice of `rest` numbers of the secret."""
    d = sqrt(rest * (inst.q - inst.ratio) / log_delta(beta))
    return max(rest + 1, min(rest + inst.samples, round(d)))


@lru_cache(None)
def dual_bias(inst, beta, sieve, rest):
    """-ln of the bias of one dual vector: 2 (pi sigma / Q)^2."""
    d = dual_dimension(inst, beta, rest)
    length = (
        log2(4 / 3) / 2
        + log_gh(sieve)
        + (d - sieve) * log_delta(beta)
        + rest * (inst.q - inst.ratio) / d
    )
    return 2 * pi * pi * 4.0 ** min(60.0, length + log2(inst.error) - inst.q)


def sieve_dimension(model, beta, d):
    """The dimension of the sieve that makes dual vectors; in gates as costly as BKZ (GJ 2021)."""
    if model != "gates":
        return beta
    return min(d, floor(beta - free(beta) + log2(max(1, d - beta) * PROGRESSIVE) / SIEVE))


def least_guess(inst, model, beta, keys, coded, limit):
    """min over k, f, p of log2 of the cost of guesses and transforms below `limit`."""
    bits = entropy(inst.secret)
    best = (limit,)
    switch = inst.secret**2 * (2 * pi * pi / (2 * pi * e) if coded else pi * pi / 6)
    moduli = [2 ** (x / 4) for x in range(4, 25)] if coded else [*range(2, 17), 20, 24, 32]
    for k in range(0, 60, 2):
        enumeration = k * bits
        if model == "gates":
            # MATZOV (2022), theorem 7.6: guesses in order of probability
            alpha = (pi * inst.secret) ** 2
            spread = exp(8 * alpha * exp(-2 * alpha) * math.tanh(alpha))
            enumeration += k * log2(2 * spread / sqrt(e))
            enumeration -= log2(1 - exp(-1 / (2 * inst.secret**2)))
        if enumeration >= best[0]:
            break
        for p in moduli:
            fits = False
            for f in range(0, 160, 2):
                transform = f * log2(p)
                rest = inst.dimension - k - f
                d = dual_dimension(inst, beta, rest)
                sieve = sieve_dimension(model, beta, d)
                # Albrecht (2017), MATZOV (2022): N = bias^-2 ln(number of guesses)
                loss = dual_bias(inst, beta, sieve, rest) + f * switch / p**2
                guesses = (k * bits + transform) * log(2) + log(2)
                needed = 2 * loss / log(2) + log2(guesses) - keys
                if model == "gates":
                    table = 2 + log2(5 * 32) + needed
                    fourier = 10 + log2(f) + transform + log2(p) if f else 0
                else:
                    table, fourier = needed, log2(f * log2(p)) + transform if f else 0
                cost = enumeration + add(table, fourier) if k or f else 0.0
                if needed <= sieve * log2(4 / 3) / 2:
                    fits = True
                    if cost < best[0]:
                        best = (cost, k, f, p)
                if fits or enumeration + transform > best[0]:
                    break
    return best if len(best) > 1 else None


def dual_hybrid(inst, model, keys=0, coded=False):
    """(log2 of the cost, beta, k, f, p). `keys`: log2 of the number of instances with one A."""
    middle = usvp(inst)[0]
    best = (1e9,)
    for beta in range(max(SMALLEST, middle - 60), middle + 40):
        d = dual_dimension(inst, beta, inst.dimension)
        reduction = bkz_cost(model, beta, d)
        if model == "gates":
            reduction = add(reduction, sieve_gates(sieve_dimension(model, beta, d)))
        if reduction >= best[0]:
            break
        guess = least_guess(inst, model, beta, keys, coded, best[0])
        if guess:
            best = min(best, (add(reduction, guess[0]), beta, *guess[1:]))
    return best


# ---- the report


def calibrate():
    """Against published figures of Kyber: its round 3 specification, and the lattice estimator."""
    for name, n, deviation, published in (("512", 512, sqrt(1.5), 406), ("768", 768, 1.0, 625)):
        inst = Instance("", n, n, log2(3329), deviation, deviation)
        beta, m = usvp(inst)
        print(f"calibration, Kyber{name}: block size {beta}, published {published}")
        assert abs(beta - published) <= 2
        if n == 512:
            gates = bkz_cost("gates", beta, n + m + 1), bdd_gates(inst)[0]
            gates += (dual_hybrid(inst, "gates")[0],)
            print("  gates, usvp {:.1f}, bdd {:.1f}, dual hybrid {:.1f}".format(*gates), end="; ")
            print("lattice estimator 143.8, 140.2, 139.2")
            assert max(abs(x - y) for x, y in zip(gates, (143.8, 140.2, 139.2))) < 1.5


def line(name, figures, note=""):
    cells = "".join(f"{x:10.1f}" if x else " " * 10 for x in figures)
    print(f"  {name:<22}{cells}  {note}".rstrip())


def report(inst):
    """Prints all figures of an instance, and returns the lowest classical one."""
    print(f"\n{inst.name}: {inst}")
    beta, m = usvp(inst)
    primal = 0.292 * beta
    if beta > 1000:
        at_least = "" if beta < LARGEST else " or more"
        print(f"  usvp: block size {beta}{at_least}, {primal:.0f} bits classical; nothing else run")
        return primal
    costs = ("classical", "quantum", "gates")
    print(f"  {'bits':<22}" + "".join(f"{x:>10}" for x in costs))
    d = m + inst.dimension + 1
    line("usvp", [bkz_cost(x, beta, d) for x in costs], f"beta {beta}, m {m}")
    found = bdd_gates(inst)
    line("bdd", (None, None, found[0]), f"beta {found[1]}, eta {found[2]}")
    dual = [dual_hybrid(inst, x) for x in costs]
    line("dual hybrid", [x[0] for x in dual], "beta {}, k {}, f {}, p {}".format(*dual[0][1:]))
    line("dual hybrid, coded", [dual_hybrid(inst, x, coded=True)[0] for x in costs[:2]])
    line("2^17 keys at once", [dual_hybrid(inst, x, keys=17)[0] for x in costs[:2]], "see below")
    figures = [primal, dual[0][0]]
    others = OTHERS.get((inst.name, inst.error), NONE)
    for name, (other, hybrid) in zip(("first", "second"), others):
        if other:
            print(f"  {name} other script: usvp {other}, dual hybrid {hybrid}")
            assert abs(other - primal) <= 1, inst.name
            figures += [other, hybrid]
    lowest = min(figures)
    print(f"  lowest, classical: {lowest:.1f}" + (f", BELOW {WANTED}" if lowest < WANTED else ""))
    return lowest


def main(wanted):
    calibrate()
    lowest = {}
    for inst in instances():
        if not wanted or inst.name in wanted:
            lowest[inst.name] = report(inst)
            sys.stdout.flush()
    print("\nlowest, classical:", ", ".join(f"{k} {v:.1f}" for k, v in lowest.items()))
    below = [k for k, v in lowest.items() if v < WANTED]
    print(f"below {WANTED} bits: {', '.join(below) or 'none'}")
    print("'2^17 keys at once' tells keys (or masked rows) under one A, of rows that it knows,")
    print("from random numbers. The proof pays for this: its bound counts every key.")


if __name__ == "__main__":
    main(sys.argv[1:])
