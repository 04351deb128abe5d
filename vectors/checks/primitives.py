"""Ciphers, hashes and key agreement. Ciphers work on many blocks at once, as lanes of long integers
or of byte strings."""
import functools
import hashlib
import hmac
import math
import struct

SERVER = 2**32 - 1


class Refused(Exception):
    """A refusal: the reason, the party that refuses, its phase, and who is to blame."""

    def __init__(self, what, party=None, phase=None, culprits=()):
        super().__init__(what)
        self.party, self.phase, self.culprits = party, phase, list(culprits)


def need(condition, what, *blame):
    if not condition:
        raise Refused(what, *blame)


def unhex(text):
    return bytes.fromhex(text)


def double(text):
    return struct.unpack(">d", unhex(text))[0]


def hexed(value):
    return struct.pack(">d", value).hex()


def number(data):
    return int.from_bytes(data, "little")


def pieces(data, size):
    return [data[i:i + size] for i in range(0, len(data), size)]


def xor(a, b):
    if len(a) != len(b):
        raise ValueError("strings of two lengths")
    return (number(a) ^ number(b)).to_bytes(len(a), "little")


def ids(*numbers):
    return struct.pack(f"<{len(numbers)}I", *numbers)


def round_away(x):
    """Rounds to the nearest integer, ties away from zero."""
    whole = math.floor(abs(x))
    whole += abs(x) - whole >= 0.5
    return whole if x >= 0 else -whole


# ChaCha20 and Poly1305.

QUARTERS = [(0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15),
            (0, 5, 10, 15), (1, 6, 11, 12), (2, 7, 8, 13), (3, 4, 9, 14)]


def chacha20(key, length, nonce=bytes(12)):
    """The key stream from block 0. Every lane of 64 bits is a block."""
    count = -(-length // 64)
    ones = number(struct.pack("<Q", 1) * count)
    mask = 0xFFFFFFFF * ones
    words = (0x61707865, 0x3320646E, 0x79622D32, 0x6B206574, *struct.unpack("<8I", key))
    start = [word * ones for word in words] + [number(struct.pack(f"<{count}Q", *range(count)))]
    start += [word * ones for word in struct.unpack("<3I", nonce)]
    x = start[:]
    for _ in range(10):
        for a, b, c, d in QUARTERS:
            for p, q, r, turn in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
                x[p] = (x[p] + x[q]) & mask
                v = x[r] ^ x[p]
                x[r] = (v << turn | v >> (32 - turn)) & mask
    out = bytearray(64 * count)
    for i, (a, b) in enumerate(zip(x, start)):
        lanes = (a + b).to_bytes(8 * count + 1, "little")[:8 * count]
        for byte in range(4):
            out[4 * i + byte::64] = lanes[byte::8]
    return bytes(out[:length])


def seal(key, nonce, text, associated):
    """ChaCha20-Poly1305, RFC 8439."""
    stream = chacha20(key, 64 + len(text), nonce)
    out = xor(text, stream[64:])
    r = number(stream[:16]) & 0x0FFFFFFC0FFFFFFC0FFFFFFC0FFFFFFF
    s = number(stream[16:32])
    pad = lambda data: data + bytes(-len(data) % 16)
    message = pad(associated) + pad(out) + struct.pack("<QQ", len(associated), len(out))
    total = 0
    for block in pieces(message, 16):
        total = (total + number(block + b"\x01")) * r % (2**130 - 5)
    return out + ((total + s) % 2**128).to_bytes(16, "little")


# AES.

def doubled(x):
    return (x << 1 ^ 0x1B) & 0xFF if x & 0x80 else x << 1


def times(a, b):
    product = 0
    while b:
        if b & 1:
            product ^= a
        a, b = doubled(a), b >> 1
    return product


PRODUCTS = [bytes(times(a, b) for b in range(256)) for a in range(256)]
INVERSE = bytes([0] + [PRODUCTS[a].index(1) for a in range(1, 256)])


def rotate(x, by):
    return (x << by | x >> (8 - by)) & 0xFF


SBOX = bytes(INVERSE[a] ^ rotate(INVERSE[a], 1) ^ rotate(INVERSE[a], 2) ^ rotate(INVERSE[a], 3)
             ^ rotate(INVERSE[a], 4) ^ 0x63 for a in range(256))
SBOX2, SBOX3 = SBOX.translate(PRODUCTS[2]), SBOX.translate(PRODUCTS[3])


@functools.lru_cache(64)
def round_keys(keys):
    """The round keys of each key, by round and position."""
    key, constant = [keys[i::16] for i in range(16)], 1
    out = [key]
    for _ in range(10):
        new = []
        for i in range(16):
            turn = key[12 + (i + 1) % 4].translate(SBOX) if i < 4 else new[i - 4]
            new.append(xor(key[i], turn))
            if i == 0:
                new[0] = xor(new[0], bytes([constant]) * len(new[0]))
        key, constant = new, doubled(constant)
        out.append(key)
    return out


@functools.lru_cache(64)
def schedule(keys, count):
    """The round keys for `count` blocks, all bytes of a position side by side."""
    repeats = count if len(keys) == 16 else 1
    return [number(b"".join([part * repeats for part in key])) for key in round_keys(keys)]


# For each row of the mixing matrix, the position that a position gets its byte from.
TURNED = [[(at + 4 * (at % 4)) % 16 for at in (i - i % 4 + (i + by) % 4 for i in range(16))]
          for by in range(4)]


def aes128(keys, blocks):
    """Encrypts every block under the key at its place, or all blocks under one key."""
    count = len(blocks) // 16
    if not count:
        return b""
    kept = schedule if count <= 2**12 else schedule.__wrapped__
    first, *others, last = kept(keys, count)
    lanes = lambda state: pieces(state.to_bytes(16 * count, "little"), count)
    turned = lambda parts, by, box: number(
        b"".join([parts[at] for at in TURNED[by]]).translate(box))
    state = number(b"".join([blocks[i::16] for i in range(16)])) ^ first
    for key in others:
        parts = lanes(state)
        state = turned(parts, 0, SBOX2) ^ turned(parts, 1, SBOX3) ^ turned(parts, 2, SBOX)
        state ^= turned(parts, 3, SBOX) ^ key
    out = bytearray(16 * count)
    for i, part in enumerate(lanes(turned(lanes(state), 0, SBOX) ^ last)):
        out[i::16] = part
    return bytes(out)


SUITES = ["aes128ctr", "chacha20"]


def stream(suite, seed, length):
    if SUITES.index(suite):
        return chacha20(seed, length)
    counters = b"".join(seed[16:24] + struct.pack(">Q", i) for i in range(-(-length // 16)))
    return aes128(seed[:16], counters)[:length]


class Stream:
    """A reader of the ChaCha20 stream of a seed."""

    def __init__(self, seed):
        self.seed, self.at, self.data = seed, 0, b""

    def read(self, count):
        if self.at + count > len(self.data):
            self.data = chacha20(self.seed, 2 * (self.at + count) + 4096)
        self.at += count
        return self.data[self.at - count:self.at]

    def below(self, n, unit):
        """A uniform number below n. Draws whole units of bytes, cuts them to the bits of n, and
        repeats until the number is below n."""
        size = -(-n.bit_length() // (8 * unit)) * unit
        while True:
            x = number(self.read(size)) & (1 << n.bit_length()) - 1
            if x < n:
                return x


# The universal hash.

PIECE = 2**14


def product(a, b):
    """The product of two polynomials over GF(2)."""
    out = 0
    while b:
        out ^= a * (b & -b)
        b &= b - 1
    return out


def modulo(a):
    """The remainder modulo x^128 + x^7 + x^2 + x + 1."""
    while a >> 128:
        high = a >> 128
        a = a & 2**128 - 1 ^ product(high, 0b10000111)
    return a


@functools.lru_cache(64)
def universal_key(seed):
    """The point, and the words."""
    stream = chacha20(seed, 16 + PIECE)
    return number(stream[:16]), [number(word) for word in pieces(stream[16:], 8)]


def universal_hash(seed, strings):
    """NH of every piece of every string, as coefficients of a polynomial: *Hash* of
    docs/spec/shade.md."""
    (point, keys), out = universal_key(seed), 0
    for piece in (piece for string in strings for piece in pieces(string, PIECE)):
        words = [number(word) for word in pieces(piece + bytes(-len(piece) % 16), 8)]
        masked = [m ^ k for m, k in zip(words, keys)]
        for a, b in zip(masked[::2], masked[1::2]):
            out ^= product(a, b)
        out = modulo(product(out, point))
    return out.to_bytes(16, "little")


# X25519 and HKDF.

P = 2**255 - 19
BASE = (9).to_bytes(32, "little")


@functools.cache
def x25519(secret, point):
    """RFC 7748."""
    k = number(secret) & (2**254 - 8) | 2**254
    u = number(point) & (2**255 - 1)
    x2, z2, x3, z3 = 1, 0, u, 1
    for bit in reversed(range(255)):
        swap = k >> bit & 1
        if swap:
            x2, z2, x3, z3 = x3, z3, x2, z2
        a, b, c, d = x2 + z2, x2 - z2, x3 + z3, x3 - z3
        da, cb, aa, bb = d * a, c * b, a * a, b * b
        x3, z3 = (da + cb) ** 2 % P, u * (da - cb) ** 2 % P
        e = aa - bb
        x2, z2 = aa * bb % P, e * (aa + 121665 * e) % P
        if swap:
            x2, z2, x3, z3 = x3, z3, x2, z2
    return (x2 * pow(z2, P - 2, P) % P).to_bytes(32, "little")


def public(secret):
    return x25519(secret, BASE)


def expand(key, purpose, session, context):
    info = b"undertone/v1/" + purpose.encode() + session + context + b"\x01"
    return hmac.digest(key, info, hashlib.sha256)


def derive(seed, session, purpose, context=b""):
    return expand(hmac.digest(bytes(32), seed, hashlib.sha256), purpose, session, context)


def extract(session, purpose, material):
    return expand(hmac.digest(session, material, hashlib.sha256), purpose, session, b"")


def agree(session, purpose, secret, other):
    """The secret on which two key pairs agree."""
    need(canonical(other), "a key that is not canonical")
    shared = x25519(secret, other)
    need(any(shared), "a key of low order")
    return extract(session, purpose, shared + b"".join(sorted((public(secret), other))))


def canonical(key):
    """Whether a public key is a number below the prime."""
    return int.from_bytes(key, "little") < 2**255 - 19


def low_order(key):
    """Whether eight times the point is the neutral element: three doublings."""
    x, z = int.from_bytes(key, "little") % P, 1
    for _ in range(3):
        x, z = (x * x - z * z) ** 2 % P, 4 * x * z * (x * x + 486662 * x * z + z * z) % P
    return z == 0
