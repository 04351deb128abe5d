"""Classes, matrix, tables and samplers of lwe: docs/spec/lwe.md."""
import functools
import hashlib
import itertools
import math
import struct
from bisect import bisect_right

from .primitives import ids, number, pieces, stream

# Bits after the point of the numbers below. The smallest probability of a table is above 2^-720.
PLACES = 900


class Size:
    """The parameters of a class. Deviations of secrets and errors are 19/4 in all classes."""

    def __init__(self, bits, length, q, n, h, v, masked, header, answer, opening):
        self.bits, self.length, self.q, self.n, self.h, self.v = bits, length, q, n, h, v
        self.masked, self.header, self.answer, self.opening = masked, header, answer, opening
        self.t, self.modulus = bits // 2 + 1, 2**q
        self.tau = pow(self.t, -1, self.modulus)
        self.columns = min(8192, 2**25 // bits)


SIZES = {numbers[0]: Size(*numbers) for numbers in (
    (1024, 1280, 37, 1792, 24, 15, 2360, 3072, 2665491, 11730961),
    (2048, 2048, 38, 1792, 25, 15, 4737, 128, 3384041, 10887510),
    (4096, 4096, 40, 2048, 26, 15, 9530, 128, 7681452, 22561005),
    (8192, 8192, 42, 2048, 28, 16, 19179, 128, 15457908, 44562025),
    (16384, 16384, 44, 2048, 29, 18, 38597, 128, 34652770, 96499842),
)}


def size_of(bits):
    return SIZES[min(most for most in SIZES if most >= bits)]


# Tables.

@functools.cache
def ln2():
    """ln 2 = 2·artanh(1/3)."""
    one = 2**(PLACES + 1)
    return sum(one // ((2 * k + 1) * 3**(2 * k + 1)) for k in range(PLACES))


def exponential(above, below):
    """2^PLACES·exp(−above/below): a series for a small argument, then ten squarings."""
    x = (above << PLACES) // (below << 10)
    total, term, k = 0, 1 << PLACES, 1
    while term:
        total += term if k % 2 else -term
        term, k = (term * x >> PLACES) // k, k + 1
    for _ in range(10):
        total = total * total >> PLACES
    return total


def thresholds(exponents):
    """The thresholds of a distribution with probabilities as exp(−a/b), for each exponent a/b."""
    sums = list(itertools.accumulate(exponential(*exponent) for exponent in exponents))
    return [(part << 128) // sums[-1] for part in sums[:-1]]


def digest(table):
    return hashlib.sha256(b"".join(a.to_bytes(16, "little") for a in table)).hexdigest()


# The samplers of numbers.

class Source:
    """The stream of a seed, made anew and longer when it ends."""

    def __init__(self, suite, seed, expected=4096):
        self.suite, self.seed, self.expected, self.at, self.data = suite, seed, expected, 0, b""

    def read(self, count):
        self.at += count
        if self.at > len(self.data):
            length = max(self.expected, self.at + self.at // 2)
            self.data = stream(self.suite, self.seed, length)
        return self.data[self.at - count:self.at]

    def numbers(self, count):
        """Numbers of 16 bytes."""
        return [number(part) for part in pieces(self.read(16 * count), 16)]


@functools.cache
def secret():
    """The thresholds of a number of a secret, a Gaussian of deviation 19/4."""
    return thresholds([((4 * u)**2, 2 * 19**2) for u in range(-64, 65)])


@functools.cache
def error(size, bit):
    """The thresholds of a number of an error for a bit of the code: with a one its centre is
    2/t."""
    return thresholds([((4 * (size.t * u - 2 * bit))**2, 2 * (19 * size.t)**2)
                       for u in range(-64, 65)])


@functools.cache
def coset(size, bit):
    """The thresholds of a number of a masked row for a bit of the code."""
    return thresholds([((size.t * u + bit)**2, 2 * size.masked**2) for u in range(-64, 65)])


def small(source, tables):
    """A number from −64 to 64 by each table."""
    return [bisect_right(table, a) - 64
            for table, a in zip(tables, source.numbers(len(tables)), strict=True)]


def secret_and_error(source, code, size):
    """The secret and the errors of a key."""
    s = small(source, [secret()] * size.n)
    return s, small(source, [error(size, bit) for bit in code])


def masked_row(source, code, size):
    numbers = small(source, [coset(size, bit) for bit in code])
    return [x + size.t * u for x, u in zip(code, numbers, strict=True)]


@functools.cache
def sixteenths():
    """2^64·2^(−i/16): four square roots of powers of two."""
    roots = [2**64 - 1]
    for i in range(1, 16):
        # 2^(1024 − i/16) is the sixteenth root of 2^(16384 − i).
        root = 2**(16384 - i)
        for _ in range(4):
            root = math.isqrt(root)
        roots.append(root >> 960)
    return roots


SERIES = [2**64 - 1, 2**64 - 1] + [2**64 // math.factorial(m) for m in (2, 3)]
SERIES += [2**52 // math.factorial(m) for m in range(4, 11)]


def power(x):
    """2^64·2^(−x/2^64), nearly."""
    y = x % 2**60 * (ln2() >> PLACES - 64) >> 64
    p = SERIES[10]
    for c in SERIES[9:3:-1]:
        p = c - ((y >> 12) * p >> 52)
    p <<= 12
    for c in SERIES[3::-1]:
        p = c - (y * p >> 64)
    return p * sixteenths()[x >> 60] >> 64


class Wide:
    """Wide Gaussians of a deviation, for residues modulo `t`."""

    def __init__(self, deviation, t):
        self.t, self.step = t, 2**(deviation.bit_length() - 2)
        self.table = thresholds([((u * self.step)**2, 2 * deviation**2) for u in range(64)])
        below = 2 * (t * deviation)**2
        scaled = lambda f: (1 << f + PLACES) // (below * ln2())
        self.f = max(f for f in range(64, 64 + below.bit_length() + 2) if scaled(f) < 2**64)
        self.factor = scaled(self.f)

    def accepted(self, m, u, a2, a3):
        x = m * (m + 2 * u * self.step * self.t) * self.factor >> self.f - 64
        zeros = 2**min(x >> 64, 38) - 1
        return not a3 & zeros and a2 < power(x % 2**64)

    def draw(self, source, residues):
        out, missing = [None] * len(residues), list(range(len(residues)))
        while missing:
            for part in pieces(missing, 64):
                words = struct.unpack("<256Q", source.read(2048))
                for place, i in enumerate(part):
                    low, high = words[2 * place:2 * place + 2]
                    a1, a2 = words[128 + place::64]
                    a3 = a1 >> 25
                    u = bisect_right(self.table, high << 64 | low)
                    z, negative = a1 % self.step, a1 >> 63
                    m = z * self.t + (self.t - residues[i] if negative else residues[i])
                    if self.accepted(m, u, a2, a3):
                        out[i] = -(z + u * self.step) - 1 if negative else z + u * self.step
            missing = [i for i in missing if out[i] is None]
        return out


@functools.cache
def wide(deviation, t):
    return Wide(deviation, t)


# The matrix. A polynomial is one integer with 128 bits for each coefficient, so that a product of
# integers is a product of polynomials.

def joined(coefficients, modulus):
    words = [0] * 512
    words[::2] = [c % modulus for c in coefficients]
    return number(struct.pack("<512Q", *words))


def reduced(product, modulus):
    """The coefficients modulo X^256 + 1. The low words are enough for a modulus of 2^q."""
    words = struct.unpack("<1024Q", product.to_bytes(8192, "little"))[::2]
    return [(a - b) % modulus for a, b in zip(words[:256], words[256:])]


class Matrix:
    """The public matrix of a session."""

    def __init__(self, session, size):
        self.modulus, self.across = size.modulus, size.n // 256
        label = b"undertone/v1/lwe ring" + session + ids(size.bits)
        count = size.length * self.across
        words = struct.unpack(f"<{count}Q", hashlib.shake_128(label).digest(8 * count))
        self.blocks = pieces(pieces(words, 256), self.across)

    @functools.cached_property
    def direct(self):
        return [[joined(p, self.modulus) for p in row] for row in self.blocks]

    @functools.cached_property
    def turned(self):
        """The columns of the polynomials of transposed blocks, p(1/X)."""
        rows = [[joined([p[0], *(-c for c in p[:0:-1])], self.modulus) for p in row]
                for row in self.blocks]
        return list(zip(*rows))

    def product(self, polynomials, vector):
        parts = [joined(part, self.modulus) for part in pieces(vector, 256)]
        return [c for row in polynomials
                for c in reduced(sum(map(int.__mul__, row, parts)), self.modulus)]

    def times(self, s):
        """A·s."""
        return self.product(self.direct, s)

    def after(self, w):
        """w·A."""
        return self.product(self.turned, w)
