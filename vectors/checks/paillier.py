"""Paillier: keys, ciphertexts, slots. See docs/spec/paillier.md."""
import math

from .primitives import Stream, need, unhex
from .reasons import refused_by

SIEVE = bytearray([0, 0]) + bytearray([1]) * (2**16 - 2)
for at in range(2, 256):
    if SIEVE[at]:
        SIEVE[at * at::at] = bytes(len(range(at * at, 2**16, at)))
SMALL = [at for at, prime in enumerate(SIEVE) if prime]
PRIMORIAL = math.prod(SMALL)


def is_prime(n):
    """The test of Miller and Rabin with 24 bases."""
    if n < 2**16:
        return n > 1 and bool(SIEVE[n])
    if math.gcd(n, PRIMORIAL) > 1:
        return False
    odd, twos = n - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    for base in SMALL[:24]:
        x = pow(base, odd, n)
        if x not in (1, n - 1) and all((x := x * x % n) != n - 1 for _ in range(twos - 1)):
            return False
    return True


def check_length(bits):
    need(2048 <= bits <= 4096, f"{bits} bits; from 2048 to 4096 are possible")


def check_modulus(n):
    """Checks a modulus as the evaluator does, except for its exact length."""
    need(math.gcd(n, PRIMORIAL) == 1, "divisible by a number below 2¹⁶")
    need(math.gcd(pow(2, n, n) - 2, n) == 1, "a prime, or a power of one")


def check_key(n, primes):
    if n is not None:
        check_length(n.bit_length())
        check_modulus(n)
        return
    p, q = primes
    check_length((p * q).bit_length())
    need(p != q, "one prime twice")
    need(p.bit_length() == q.bit_length(), "primes of two lengths")
    need(is_prime(p) and is_prime(q), "a factor that is not prime")


def check_ciphertext(c, n):
    need(0 <= c < n * n, "not below N²")
    need(math.gcd(c, n) == 1, "it shares a factor with N")


def check_plaintext(m, n):
    need(0 <= m < n, "not below N")


class Key:
    def __init__(self, p, q):
        self.p, self.q, self.n, self.square = p, q, p * q, (p * q)**2

    def power(self, base, exponent):
        """A power modulo N², by the Chinese remainder theorem."""
        p, q = self.p**2, self.q**2
        a = pow(base, exponent % (self.p * (self.p - 1)), p)
        b = pow(base, exponent % (self.q * (self.q - 1)), q)
        return a + (b - a) * pow(p, -1, q) % q * p

    def decrypt(self, c):
        lam = (self.p - 1) * (self.q - 1)
        root = self.power(c, lam)
        if root % self.n != 1:
            raise ValueError("a number that does not decrypt")
        return root // self.n * pow(lam, -1, self.n) % self.n


def key_case(case):
    p, q, n = (int(case[name], 16) for name in "pqn")
    check_key(None, (p, q))
    check_key(n, None)
    yield "n", p * q, n
    yield "bits", n.bit_length(), case["bits"]


def key_refused(vectors, entry):
    case = vectors["cases"][0]
    integers = lambda texts: [int(text, 16) for text in texts]
    n, primes = entry.get("n"), entry.get("primes")
    if n is not None:
        refused_by(entry, check_key, (int(case["n"], 16), None), (int(n, 16), None))
    else:
        refused_by(entry, check_key, (None, integers([case["p"], case["q"]])),
                   (None, integers(primes)))
    return ()


def paillier_case(case):
    get = lambda name: [int(x, 16) for x in case[name]]
    key = Key(int(case["p"], 16), int(case["q"], 16))
    n, square = key.n, key.square
    plain, others, full, encrypted = map(get, ("plain", "others", "full", "encrypted_others"))
    yield "n", n, int(case["n"], 16)
    noise = Stream(unhex(case["seed"]))
    r = [noise.below(n, 8) for _ in plain]
    yield "r", r, get("r")
    yield "full", [(1 + m * n) * key.power(x, n) % square for m, x in zip(plain, r)], full
    for name in ("full", "short", "owner", "encrypted_others"):
        opened = [key.decrypt(c) for c in get(name)]
        yield f"{name}, decrypted", opened, others if name[0] == "e" else plain
    yield "all differ", len({*full, *get("short"), *get("owner")}), 3 * len(plain)
    yield "added", [a * b % square for a, b in zip(full, encrypted, strict=True)], get("added")
    pairs = list(zip(full, others, strict=True))
    yield "added plain", [c * (1 + m * n) % square for c, m in pairs], get("added_plain")
    yield "multiplied", [key.power(c, m) for c, m in pairs], get("multiplied")
    sums = [
        math.prod(c for l, c in enumerate(full) if row >> l & 1) % square for row in case["rows"]
    ]
    yield "subset sums", sums, get("subset_sums")


def paillier_refused(vectors, entry):
    case, value = vectors["cases"][0], int(entry["number"], 16)
    n, check = int(case["n"], 16), check_ciphertext if entry["ciphertext"] else check_plaintext
    honest = case["full" if entry["ciphertext"] else "plain"][0]
    refused_by(entry, check, (int(honest, 16), n), (value, n))
    return ()


def pack_slots(values, width, bits):
    need(len(values) <= (bits - 1) // width, "more values than slots")
    need(all(value >> width == 0 for value in values), "a value that is too long")
    return sum(value << i * width for i, value in enumerate(values))


def unpack_slots(plain, width, count):
    need(plain >> count * width == 0, "a bit beyond the last slot")
    return [plain >> i * width & 2**width - 1 for i in range(count)]


def packed_case(case):
    values, width, bits = [int(value, 16) for value in case["values"]], case["width"], case["bits"]
    plain = pack_slots(values, width, bits)
    yield "count", (bits - 1) // width, case["count"]
    yield "plain", plain, int(case["plain"], 16)
    yield "unpacked", unpack_slots(plain, width, len(values)), values


def packed_refused(vectors, entry):
    width, values = entry["width"], entry.get("values")
    if values is None:
        refused_by(entry, unpack_slots, (2**width - 1, width, 1),
                   (int(entry["plain"], 16), width, 1))
    else:
        refused_by(entry, pack_slots, ([1, 2**width - 1], width, 2048),
                   ([int(v, 16) for v in values], width, 2048))
    return ()


CHECKS = {
    "paillier": (paillier_case, paillier_refused),
    "paillier-key": (key_case, key_refused),
    "paillier-packed": (packed_case, packed_refused),
}
