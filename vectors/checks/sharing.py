"""Parts of secure sums: shares, wiring, fixed point. See docs/spec/sums.md."""
import math
import struct
from fractions import Fraction

from .primitives import (INVERSE, PRODUCTS, chacha20, double, hexed, need, number, pieces,
                         round_away, unhex, xor)
from .reasons import refused_by


def split(secret, threshold, holders, seed):
    size = len(secret)
    rows = [secret] + pieces(chacha20(seed, size * (threshold - 1)), size)
    shares = []
    for point in range(1, holders + 1):
        share = bytes(size)
        for row in reversed(rows):
            share = xor(share.translate(PRODUCTS[point]), row)
        shares.append(share)
    return shares


def combine(shares):
    """The secret, from shares by point."""
    out = bytes(len(next(iter(shares.values()))))
    for point, share in shares.items():
        weight = 1
        for other in shares:
            if other != point:
                weight = PRODUCTS[PRODUCTS[weight][other]][INVERSE[other ^ point]]
        out = xor(out, share.translate(PRODUCTS[weight]))
    return out


def graph(clients, neighbours, seed):
    ring = list(range(clients))
    words = struct.unpack(f"<{clients}Q", chacha20(seed, 8 * clients))
    for word, i in zip(words, range(clients - 1, 0, -1)):
        pick = word * (i + 1) >> 64
        ring[i], ring[pick] = ring[pick], ring[i]
    reach = min(-(-neighbours // 2), clients - 1)
    out = [set() for _ in range(clients)]
    for at, place in enumerate(ring):
        for distance in range(1, reach + 1):
            out[place] |= {ring[(at + distance) % clients], ring[(at - distance) % clients]}
    return [sorted(others - {place}) for place, others in enumerate(out)]


def degree(p, malicious):
    """Clients, neighbours, threshold and quorum for the default target, computed with fractions."""
    corrupt, leaving = p // 10, p // 10
    quorum = min(p, (p + max(corrupt, 1)) // 2 + 1)
    stay = p - 1 - leaving
    ways = lambda successes, k, x: math.comb(successes, x) * math.comb(p - 1 - successes, k - x)
    apart = Fraction(p * (p - 1), 2)
    for k in range(1, p if p >= 50 else 0):
        apart *= Fraction(max(corrupt + leaving - k + 1, 0), p - k + 1)
        if k % 2 or apart > Fraction(1, 2**40):
            continue
        draws = math.comb(p - 1, k)
        for t in range(2, k + 2):
            bad = 2 * t - k - 1 if malicious else t
            lost = p * sum(ways(stay, k, x) for x in range(min(t, k + 1)))
            if lost * 2**20 > draws:
                break
            if bad < 1:
                continue
            exposed = p * sum(ways(corrupt, k, x) for x in range(bad, k + 1))
            if apart + Fraction(exposed, draws) <= Fraction(1, 2**40):
                return [p, k, t, quorum]
    corrupt = max(corrupt, 1)
    t = (p + corrupt) // 2 + 1 if malicious else max(p // 2, corrupt) + 1
    return [p, p - 1, max(2, min(t, p)), quorum]


def fraction_bits(word_bits, clients, bound):
    """⌊log₂⌋ of the exact quotient."""
    room = (1 - Fraction(1, 2**50)) * 2**(word_bits - 1) / clients - 1
    quotient = room / Fraction(bound)
    bits = quotient.numerator.bit_length() - quotient.denominator.bit_length()
    return bits if Fraction(2)**bits <= quotient else bits - 1


def encode(value, bound, bits, word_bits):
    need(math.isfinite(value) and abs(value) <= bound, f"{value} is beyond {bound}")
    return round_away(math.ldexp(value, bits)) % 2**word_bits


def signed(word, word_bits):
    return word - (word >> word_bits - 1 << word_bits)


def sharing_case(case):
    secret = unhex(case["secret"])
    shares = split(secret, case["threshold"], len(case["shares"]), unhex(case["coefficients_from"]))
    yield "shares", [share.hex() for share in shares], case["shares"]
    last = dict(list(enumerate(shares, 1))[-case["threshold"]:])
    yield "the secret of the last of them", combine(last).hex(), case["secret"]


def graph_case(case):
    yield "graph", graph(len(case["graph"]), case["neighbours"], unhex(case["seed"])), case["graph"]


def degree_case(case):
    for row in case["degrees"]:
        yield f"{row[0]} clients", degree(row[0], case["malicious_server"]), row


def fixed_case(case):
    bits, bound = case["word_bits"], double(case["bound"])
    fraction = fraction_bits(bits, case["clients"], bound)
    yield "fraction", fraction, case["fraction"]
    words = [encode(double(value), bound, fraction, bits) for value in case["values"]]
    packed = b"".join(word.to_bytes(bits // 8, "little") for word in words)
    yield "words", packed.hex(), case["words"]
    held = map(number, pieces(unhex(case["words"]), bits // 8))
    decoded = [hexed(math.ldexp(signed(word, bits), -fraction)) for word in held]
    yield "decoded", decoded, case["decoded"]


def fixed_refused(vectors, entry):
    bound, bits = double(entry["bound"]), entry["word_bits"]
    fraction = fraction_bits(bits, entry["clients"], bound)
    for value in (bound, -bound):
        refused_by(entry, encode, (value, bound, fraction, bits),
                   (double(entry["value"]), bound, fraction, bits))
    return ()


CHECKS = {
    "degree": (degree_case, None),
    "fixed-point": (fixed_case, fixed_refused),
    "graph": (graph_case, None),
    "sharing": (sharing_case, None),
}
