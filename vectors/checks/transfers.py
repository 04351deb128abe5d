"""Oblivious transfers: base transfers, trees, extensions and their keys."""
import functools
import hashlib
import struct
from collections import namedtuple

from .curve import ORDER, add, decode, encode, minus, multiply, multiply_generator, twice, uniform
from .primitives import aes128, chacha20, derive, ids, need, number, pieces, xor


def block(value):
    return value.to_bytes(16, "little")


def whole(bits, count):
    """`count` bits as bytes, in whole words of 64 bits."""
    return bits.to_bytes(8 * -(-count // 64), "little")


# Hashes. A permutation is given by its key.

def mmo(key, blocks):
    return xor(aes128(key, blocks), blocks)


def tmmo(key, blocks, tweaks):
    inner = aes128(key, blocks)
    return xor(aes128(key, xor(inner, b"".join(map(block, tweaks)))), inner)


def field_product(a, b):
    """The product in GF(2⁶⁴)."""
    product = 0
    for i in range(64):
        if b >> i & 1:
            product ^= a << i
    for i in range(127, 63, -1):
        if product >> i & 1:
            product ^= (2**64 | 0b11011) << i - 64
    return product


def universal(point, words):
    """The hash of words: the last word unchanged, the others times powers of the point."""
    out, power = words[-1], 1
    for word in words[:-1]:
        power = field_product(power, point)
        out ^= field_product(power, word)
    return out


CHUNK_WORDS = 32


class Context:
    def __init__(self, session, purpose, sender, receiver):
        self.session = session
        self.digest = hashlib.sha256(b"undertone/v1/transfers " + purpose + session +
                                     ids(sender, receiver)).digest()

    def derive(self, seed, purpose):
        return derive(seed, self.session, purpose, self.digest)

    def permutation(self, purpose, index):
        text = b"undertone/v1/permutation " + purpose.encode() + bytes([index]) + self.digest
        return hashlib.sha256(text).digest()[:16]

    def delta(self, seed):
        return number(chacha20(self.derive(seed, "delta"), 16))

    def __hash__(self):
        return hash((self.session, self.digest))

    def __eq__(self, other):
        return (self.session, self.digest) == (other.session, other.digest)


# Base transfers: the sender of the extension chooses.

def scalars(context, seed, count):
    wide = chacha20(context.derive(seed, "base transfer scalar"), 64 * count)
    return [2 * number(part) % ORDER for part in pieces(wide, 64)]


@functools.cache
def hashed(context, transfer, side, point):
    text = b"undertone/v1/base transfer point" + context.digest + bytes([transfer, side]) + point
    return twice(uniform(hashlib.sha512(text).digest()))


def base_key(context, transfer, side, pair, reply, shared):
    text = b"undertone/v1/base transfer key" + context.digest + bytes([transfer, side])
    text += pair + reply + shared
    return hashlib.sha256(text).digest()[:16]


@functools.cache
def base_offer(context, choices, seed):
    wide = pieces(chacha20(context.derive(seed, "base transfer point"), 128 * 64), 64)
    offer = b""
    for i, scalar in enumerate(scalars(context, seed, 128)):
        other, side = encode(twice(uniform(wide[i]))), choices >> i & 1
        mine = encode(add(multiply_generator(scalar), minus(hashed(context, i, side, other))))
        offer += other + mine if side else mine + other
    return offer


@functools.cache
def base_reply(context, offer, seed):
    """Both keys of each transfer, and the reply."""
    need(len(offer) == 8192, "base transfer points of another length")
    points = [decode(point) for point in pieces(offer, 32)]
    scalar = scalars(context, seed, 1)[0]
    reply, keys = encode(multiply_generator(scalar)), []
    for i, pair in enumerate(pieces(offer, 64)):
        sides = []
        for side in range(2):
            point = add(points[2 * i + side], hashed(context, i, side, pair[32 - 32 * side:][:32]))
            sides.append(base_key(context, i, side, pair, reply, encode(multiply(scalar, point))))
        keys.append(sides)
    return keys, reply


def reply_point(reply):
    need(len(reply) == 32, "a base transfer reply of another length")
    point = decode(reply)
    need(any(reply), "the identity")
    return point


def base_chosen(context, choices, seed, offer, reply):
    """The keys of the party that chose."""
    point = reply_point(reply)
    return [base_key(context, i, choices >> i & 1, pair, reply, encode(multiply(scalar, point)))
            for i, (scalar, pair) in enumerate(zip(scalars(context, seed, 128), pieces(offer, 64)))]


# Trees.

def total(blocks):
    out = 0
    for part in pieces(blocks, 16):
        out ^= number(part)
    return block(out)


def part_bits(f):
    return [range(start, min(128, start + f)) for start in range(0, 128, f)]


def tree_digest(context, index, checks):
    return hashlib.sha256(b"undertone/v1/tree check" + context.digest + bytes([index]) +
                          b"".join(checks)).digest()


def trees(context, f, malicious, keys):
    """The receiver's leaves of each part, and its message."""
    pi = [context.permutation("tree", i) for i in range(3)]
    leaves, message = [], b""
    for index, bits in enumerate(part_bits(f)):
        levels = [keys[i] for i in reversed(bits)]
        nodes = b"".join(levels[0])
        for level in levels[1:]:
            left, right = (mmo(key, nodes) for key in pi[:2])
            message += xor(total(left), level[0]) + xor(total(right), level[1])
            nodes = b"".join(a + b for a, b in zip(pieces(left, 16), pieces(right, 16)))
        if malicious:
            halves = [mmo(key, nodes) for key in pi[1:]]
            checks = [a + b for a, b in zip(*(pieces(half, 16) for half in halves))]
            message += b"".join(map(total, halves)) + tree_digest(context, index, checks)
            nodes = mmo(pi[0], nodes)
        leaves.append(pieces(nodes, 16))
    return leaves, message


def each(key, nodes):
    """MMO of every node, by number."""
    return dict(zip(nodes, pieces(mmo(key, b"".join(nodes.values())), 16)))


def setup_length(f, malicious):
    return 32 + sum(32 * (len(bits) - 1) + 64 * malicious for bits in part_bits(f))


def punctured(context, f, malicious, delta, keys, message):
    """The sender's leaves from the keys that it chose: all but one of each part. Refuses
    inconsistent trees."""
    need(len(message) == setup_length(f, malicious) - 32, "trees of another length")
    pi = [context.permutation("tree", i) for i in range(3)]
    parts, out = iter(pieces(message, 32)), []
    for index, bits in enumerate(part_bits(f)):
        first, *rest = reversed(bits)
        missing = delta >> first & 1
        nodes = {1 - missing: keys[first]}
        for bit in rest:
            sums, side = next(parts), 1 - (delta >> bit & 1)
            made = [each(key, nodes) for key in pi[:2]]
            children = {2 * x + c: made[c][x] for x in nodes for c in range(2)}
            known = total(b"".join(node for x, node in children.items() if x & 1 == side))
            children[2 * missing + side] = xor(xor(pieces(sums, 16)[side], keys[bit]), known)
            missing, nodes = 2 * missing + 1 - side, children
        if malicious:
            halves = [each(key, nodes) for key in pi[1:]]
            checks = {x: halves[0][x] + halves[1][x] for x in nodes}
            last = number(next(parts))
            for check in checks.values():
                last ^= number(check)
            checks[missing] = last.to_bytes(32, "little")
            same = tree_digest(context, index, [checks[x] for x in sorted(checks)]) == next(parts)
            need(same, "the trees are not consistent")
            nodes = each(pi[0], nodes)
        out.append(nodes)
    return out


# Extension.

def rows_of(leaves, chunk, bits):
    """The first bits of a chunk: u, and for each bit of the leaves' numbers a row, as numbers."""
    blocks = -(-bits // 128)
    numbers = sorted(leaves)
    counters = b"".join(block(16 * chunk + n) for n in range(blocks))
    streams = aes128(b"".join(leaves[x] * blocks for x in numbers), counters * len(numbers))
    u, rows = 0, [0] * max(numbers).bit_length()
    for x, part in zip(numbers, map(number, pieces(streams, 16 * blocks))):
        u ^= part
        for b in range(len(rows)):
            if x >> b & 1:
                rows[b] ^= part
    return u, rows


def columns(rows, count):
    """Bits t of all rows, for each t."""
    return [sum((row >> t & 1) << r for r, row in enumerate(rows)) for t in range(count)]


# A batch: its messages; the receiver's choices and keys; the sender's rows, and its keys for both
# choices.
Batch = namedtuple("Batch", "corrections challenge proof choices chosen ws zeros ones")


class Extension:
    """Both sides of an extension, from both seeds. An `odd` Δ has 1 as its lowest bit."""

    def __init__(self, session, purpose, sender, receiver, seeds, f, malicious, odd=False):
        self.context = Context(session, purpose, sender, receiver)
        self.challenges = self.context.derive(seeds[0], "transfer challenge")
        self.f, self.malicious = f, malicious
        self.delta = self.context.delta(seeds[0]) | odd
        self.choices = ~self.delta & 2**128 - 1
        self.offer = base_offer(self.context, self.choices, seeds[0])
        self.keys, reply = base_reply(self.context, self.offer, seeds[1])
        leaves, message = trees(self.context, f, malicious, self.keys)
        self.setup = reply + message
        self.leaves = [dict(enumerate(part)) for part in leaves]
        self.pi = self.context.permutation("extension", 0)
        self.chunk = self.transfers = self.batches = 0

    def challenge(self, batch):
        """The point of a batch, counted from 0."""
        return chacha20(self.challenges, 8 * batch + 8)[8 * batch:]

    def rows(self, bits):
        """The first bits of the next chunk: u of each part, and the rows of v."""
        us, vs = zip(*(rows_of(part, self.chunk, bits) for part in self.leaves))
        self.chunk += 1
        return us, [row for part in vs for row in part]

    def sender_rows(self, bits, message, corrections, chunk=0):
        """The sender's rows w of a chunk, from its own leaves."""
        chosen = [pair[self.choices >> i & 1] for i, pair in enumerate(self.keys)]
        rows = []
        known = punctured(self.context, self.f, self.malicious, self.delta, chosen, message)
        size = len(corrections) // (len(known) - 1)
        for bits_, part, change in zip(part_bits(self.f), known,
                                       [bytes(size), *pieces(corrections, size)]):
            mask = self.delta >> bits_[0] & 2**len(bits_) - 1
            _, w = rows_of({x ^ mask: leaf for x, leaf in part.items()} | {0: bytes(16)}, chunk,
                           bits)
            rows += [row ^ (number(change) if mask >> b & 1 else 0)
                     for b, row in enumerate(w)]
        return rows

    def batch(self, count):
        """Both sides of the next batch, chunk by chunk."""
        words, first = batch_words(count, self.malicious), self.transfers
        corrections, challenge, given, choices = b"", b"", b"", 0
        vs, ws = [0] * 128, [0] * 128
        for at in range(0, words, CHUNK_WORDS):
            bits, number_ = 64 * min(CHUNK_WORDS, words - at), self.chunk
            us, mine = self.rows(bits)
            kept = 2**bits - 1
            part = b"".join(((u ^ us[0]) & kept).to_bytes(bits // 8, "little") for u in us[1:])
            theirs = self.sender_rows(bits, self.setup[32:], part, number_)
            for all_, rows in ((vs, mine), (ws, theirs)):
                all_[:] = [row | (new & kept) << 64 * at for row, new in zip(all_, rows)]
            corrections, choices = corrections + part, choices | (us[0] & kept) << 64 * at
        if self.malicious:
            challenge = self.challenge(self.batches)
            given = proof(number(challenge), choices, vs, first, words)
            check_proof(number(challenge), self.delta, ws, given, first, words)
        self.transfers, self.batches = first + count, self.batches + 1
        chosen, zeros = (b"".join(map(block, columns(rows, count))) for rows in (vs, ws))
        ones = xor(zeros, block(self.delta) * count)
        return Batch(corrections, challenge, given, choices & 2**count - 1, chosen, ws, zeros, ones)

    def randomise(self, keys, first):
        if self.malicious:
            return tmmo(self.pi, keys, range(first, first + len(keys) // 16))
        return mmo(self.pi, keys)


def batch_words(count, malicious):
    return -(-count // 64) + malicious


def proof(point, choices, vs, first, words):
    split = lambda row: [row >> 64 * k & 2**64 - 1 for k in range(words)]
    hash_ = lambda row: universal(point, split(row)).to_bytes(8, "little")
    text = b"undertone/v1/transfer check" + struct.pack("<Q", first) + b"".join(map(hash_, vs))
    return hash_(choices) + hashlib.sha256(text).digest()


def check_proof(point, delta, ws, given, first, words):
    """Checks a proof as the sender does: hash(w) ⊕ hash(u₀) where Δ has a 1."""
    need(len(given) == 40, "a proof of another length")
    split = lambda row: [row >> 64 * k & 2**64 - 1 for k in range(words)]
    hashes = [
        universal(point, split(row)) ^ (number(given[:8]) if delta >> r & 1 else 0)
        for r, row in enumerate(ws)
    ]
    text = b"undertone/v1/transfer check" + struct.pack("<Q", first)
    text += b"".join(hash_.to_bytes(8, "little") for hash_ in hashes)
    need(hashlib.sha256(text).digest() == given[8:], "corrections of other choices")
