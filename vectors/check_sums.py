"""Secure sums, computed again from PROTOCOLS.md with the Python standard library alone."""
import hashlib
import hmac
import math
import struct
from fractions import Fraction


# Primitives.

def chacha20_block(key, counter, nonce):
    """One block; the last four words are `counter` and `nonce`, 16 bytes together."""
    constants = (0x61707865, 0x3320646E, 0x79622D32, 0x6B206574)
    start = [*constants, *struct.unpack("<8I", key), *struct.unpack("<4I", counter + nonce)]
    x = start[:]
    rounds = [(0, 4, 8, 12), (1, 5, 9, 13), (2, 6, 10, 14), (3, 7, 11, 15),
              (0, 5, 10, 15), (1, 6, 11, 12), (2, 7, 8, 13), (3, 4, 9, 14)]
    for _ in range(10):
        for a, b, c, d in rounds:
            for p, q, r, turn in ((a, b, d, 16), (c, d, b, 12), (a, b, d, 8), (c, d, b, 7)):
                x[p] = (x[p] + x[q]) & 0xFFFFFFFF
                v = x[r] ^ x[p]
                x[r] = (v << turn | v >> (32 - turn)) & 0xFFFFFFFF
    return struct.pack("<16I", *((a + b) & 0xFFFFFFFF for a, b in zip(x, start)))


def chacha20(key, length):
    """Nonce and 64-bit counter zero."""
    blocks = (chacha20_block(key, struct.pack("<Q", i), bytes(8)) for i in range(-(-length // 64)))
    return b"".join(blocks)[:length]


def seal(key, nonce, text, associated):
    """ChaCha20-Poly1305, RFC 8439."""
    stream = b"".join(chacha20_block(key, struct.pack("<I", i), nonce)
                      for i in range(len(text) // 64 + 2))
    out = bytes(a ^ b for a, b in zip(text, stream[64:]))
    r = int.from_bytes(stream[:16], "little") & 0x0FFFFFFC0FFFFFFC0FFFFFFC0FFFFFFF
    s = int.from_bytes(stream[16:32], "little")
    pad = lambda data: data + bytes(-len(data) % 16)
    message = pad(associated) + pad(out) + struct.pack("<QQ", len(associated), len(out))
    total = 0
    for at in range(0, len(message), 16):
        total = (total + int.from_bytes(message[at:at + 16] + b"\x01", "little")) * r % (2**130 - 5)
    return out + ((total + s) % 2**128).to_bytes(16, "little")


def double(x):
    return (x << 1 ^ 0x1B) & 0xFF if x & 0x80 else x << 1


def times(a, b):
    product = 0
    while b:
        if b & 1:
            product ^= a
        a, b = double(a), b >> 1
    return product


PRODUCTS = [[times(a, b) for b in range(256)] for a in range(256)]
INVERSE = [0] + [PRODUCTS[a].index(1) for a in range(1, 256)]


def rotate(x, by):
    return (x << by | x >> (8 - by)) & 0xFF


SBOX = [INVERSE[a] ^ rotate(INVERSE[a], 1) ^ rotate(INVERSE[a], 2) ^ rotate(INVERSE[a], 3)
        ^ rotate(INVERSE[a], 4) ^ 0x63 for a in range(256)]


def aes128(key):
    """The block cipher of FIPS 197 under `key`."""
    words, constant = [list(key[i:i + 4]) for i in range(0, 16, 4)], 1
    for i in range(4, 44):
        word = words[i - 1]
        if i % 4 == 0:
            word = [SBOX[b] for b in word[1:] + word[:1]]
            word[0] ^= constant
            constant = double(constant)
        words.append([a ^ b for a, b in zip(words[i - 4], word)])
    keys = [sum(words[i:i + 4], []) for i in range(0, 44, 4)]

    def encrypt(block):
        state = [a ^ b for a, b in zip(block, keys[0])]
        for number in range(1, 11):
            state = [SBOX[state[(i + 4 * (i % 4)) % 16]] for i in range(16)]
            if number < 10:
                mixed = []
                for c in range(0, 16, 4):
                    a = state[c:c + 4]
                    mixed += [PRODUCTS[2][a[i]] ^ PRODUCTS[3][a[(i + 1) % 4]] ^ a[(i + 2) % 4]
                              ^ a[(i + 3) % 4] for i in range(4)]
                state = mixed
            state = [a ^ b for a, b in zip(state, keys[number])]
        return bytes(state)
    return encrypt


def stream(suite, seed, length):
    if suite == "chacha20":
        return chacha20(seed, length)
    encrypt = aes128(seed[:16])
    blocks = (encrypt(seed[16:24] + struct.pack(">Q", i)) for i in range(-(-length // 16)))
    return b"".join(blocks)[:length]


P = 2**255 - 19


def x25519(secret, point):
    """RFC 7748."""
    k = bytearray(secret)
    k[0] &= 248
    k[31] = k[31] & 127 | 64
    k = int.from_bytes(k, "little")
    u = int.from_bytes(point, "little") & (2**255 - 1)
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


BASE = (9).to_bytes(32, "little")


def expand(key, purpose, session, context):
    info = b"undertone/v1/" + purpose.encode() + session + context + b"\x01"
    return hmac.new(key, info, hashlib.sha256).digest()


def derive(seed, session, purpose, context=b""):
    return expand(hmac.new(bytes(32), seed, hashlib.sha256).digest(), purpose, session, context)


def extract(session, purpose, material):
    return expand(hmac.new(session, material, hashlib.sha256).digest(), purpose, session, b"")


def ids(*numbers):
    return struct.pack(f"<{len(numbers)}I", *numbers)


# Pieces.

def agree(session, purpose, secret, public):
    return extract(session, purpose, x25519(secret, public))


def sealed_message(session, pair_secret, from_, to, number, text):
    key = derive(pair_secret, session, "seal", ids(from_, to))
    return seal(key, bytes(4) + struct.pack("<Q", number), text, session + ids(from_, to))


def split(secret, threshold, holders, seed):
    size = len(secret)
    coefficients = chacha20(seed, size * (threshold - 1))
    rows = [secret] + [coefficients[i * size:(i + 1) * size] for i in range(threshold - 1)]
    shares = []
    for point in range(1, holders + 1):
        share = bytes(size)
        for row in reversed(rows):
            share = bytes(PRODUCTS[a][point] ^ b for a, b in zip(share, row))
        shares.append(share)
    return shares


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
    """Exactly, with fractions, for the default target."""
    corrupt, leaving = p // 10, p // 10
    quorum = min(p, (p + max(corrupt, 1)) // 2 + 1)
    hyper = lambda successes, k, x: Fraction(
        math.comb(successes, x) * math.comb(p - 1 - successes, k - x), math.comb(p - 1, k))
    if p >= 50:
        for k in range(2, p, 2):
            apart = Fraction(p * (p - 1), 2)
            for i in range(k):
                apart *= Fraction(max(corrupt + leaving - i, 0), p - i)
            for t in range(2, k + 2):
                bad = 2 * t - k - 1 if malicious else t
                if bad < 1:
                    continue
                exposed = apart + p * sum(hyper(corrupt, k, x) for x in range(bad, k + 1))
                stay = p - 1 - leaving
                lost = p * sum(hyper(stay, k, x) for x in range(min(t, k + 1)))
                if exposed <= Fraction(1, 2**40) and lost <= Fraction(1, 2**20):
                    return [p, k, t, quorum]
    corrupt = max(corrupt, 1)
    t = (p + corrupt) // 2 + 1 if malicious else max(p // 2 + 1, corrupt + 1)
    return [p, p - 1, max(2, min(t, p)), quorum]


# A whole run.

class Run:
    def __init__(self, case):
        self.case = case
        self.session = bytes.fromhex(case["session"])
        self.round = case["round"]
        self.size = case["word_bits"] // 8
        self.clients = case["clients"]
        self.secrets = [self.derive_all(place) for place in range(len(self.clients))]
        self.hellos = [self.hello(place) for place in range(len(self.clients))]
        self.on_roster = [c["hello"] is not None for c in self.clients]
        assert all(self.on_roster), "everybody of these runs is on the roster"
        self.roster = ids(len(self.clients)) + b"".join(
            ids(place) + hello for place, hello in enumerate(self.hellos))
        self.digest = hashlib.sha256(
            b"undertone/v1/roster" + self.session + ids(self.round) + self.roster).digest()
        ring = extract(self.session, "graph", self.digest)
        self.graph = graph(len(self.clients), case["neighbours"], ring)
        self.sharing = [c["shares"] is not None for c in self.clients]
        self.contributors = [c["masked_words"] is not None for c in self.clients]
        self.transcript = hashlib.sha256(self.digest + bits(self.sharing)).digest()
        self.blocks, end = [], 0
        for client, shares in zip(self.clients, self.sharing):
            count = client["rows"] * case["width"] if shares else 0
            self.blocks.append(range(end, end + count))
            end += count
        self.length = end + case["shared"]

    def derive_all(self, place):
        seed = bytes.fromhex(self.clients[place]["seed"])
        of = lambda purpose: derive(seed, self.session, purpose, ids(place, self.round))
        return {name: of(name) for name in
                ("sealing key", "mask key", "self mask seed", "polynomial")}

    def public(self, place, name):
        return x25519(self.secrets[place][name], BASE)

    def rules(self):
        case = self.case
        packed = self.session + ids(self.round)
        packed += struct.pack("<QQQ", case["rows"], case["width"], case["shared"])
        packed += bytes([case["everybody_learns_shared"]]) + struct.pack("<Q", case["min_clients"])
        packed += bytes([0, 1]) + struct.pack("<QQ", case["neighbours"], case["threshold"])
        packed += bytes([["aes128ctr", "chacha20"].index(case["suite"]), self.size])
        return hashlib.sha256(packed).digest()[:16]

    def hello(self, place):
        client = self.clients[place]
        advertisement = self.rules() + struct.pack("<QQ", client["first_row"], client["rows"])
        keys = self.public(place, "sealing key") + self.public(place, "mask key")
        return keys + bytes([len(advertisement)]) + advertisement + b"\0"

    def pair(self, a, b, name, purpose):
        return agree(self.session, purpose, self.secrets[a][name], self.public(b, name))

    def holders(self, dealer):
        return sorted([*self.graph[dealer], dealer])

    def dealt(self, dealer):
        secrets = self.secrets[dealer]
        shares = split(secrets["self mask seed"] + secrets["mask key"], self.case["threshold"],
                       len(self.holders(dealer)), secrets["polynomial"])
        return dict(zip(self.holders(dealer), shares))

    def sealed(self, dealer, holder):
        secret = self.pair(dealer, holder, "sealing key", "sum pair")
        secret = derive(secret, self.session, "sum seal", self.digest)
        return sealed_message(self.session, secret, dealer, holder, 0, self.dealt(dealer)[holder])

    def shares(self, place):
        commitment = derive(self.secrets[place]["self mask seed"], self.session,
                            "self mask commitment", ids(place, self.round))
        return b"".join(self.sealed(place, other) for other in self.graph[place]) + commitment

    def shares_received(self, place):
        others = [other for other in self.graph[place] if self.sharing[other]]
        return bits(self.sharing) + b"".join(self.sealed(other, place) for other in others)

    def words(self, data):
        return [int.from_bytes(data[i:i + self.size], "little")
                for i in range(0, len(data), self.size)]

    def stream(self, secret, purpose, low, high, count):
        context = self.transcript + ids(low, high, self.round)
        context += bytes([["aes128ctr", "chacha20"].index(self.case["suite"]), self.size])
        context += struct.pack("<Q", self.length)
        seed = derive(secret, self.session, purpose, context)
        return iter(self.words(stream(self.case["suite"], seed, count * self.size)))

    def joint(self, place):
        width, words = self.case["width"], self.words(bytes.fromhex(self.clients[place]["words"]))
        out = []
        for client, shares in zip(self.clients, self.sharing):
            if shares:
                first = client["first_row"] * width
                out += words[first:first + client["rows"] * width]
        return out + words[self.case["rows"] * width:]

    def row_mask(self, place, other):
        """By position among the joint words, with its sign."""
        low, high = min(place, other), max(place, other)
        where = [*self.blocks[low], *self.blocks[high]]
        secret = self.pair(place, other, "sealing key", "sum pair")
        sign = 1 if place == low else -1
        mask = self.stream(secret, "row mask", low, high, len(where))
        return {at: sign * word for at, word in zip(where, mask)}

    def masked(self, place):
        joint = self.joint(place)
        outside = [at for at in range(self.length) if at not in self.blocks[place]]
        mask = self.stream(self.secrets[place]["self mask seed"], "self mask", place, place,
                           len(outside))
        for at, word in zip(outside, mask):
            joint[at] += word
        for other in self.graph[place]:
            if not self.sharing[other]:
                continue
            low, high = min(place, other), max(place, other)
            where = [at for at in outside if at not in self.blocks[other]]
            secret = self.pair(place, other, "mask key", "mask pair")
            mask = self.stream(secret, "edge mask", low, high, len(where))
            for at, word in zip(where, mask):
                joint[at] += word if place == low else -word
            for at, word in self.row_mask(place, other).items():
                if at in self.blocks[other]:
                    joint[at] += word
        return self.packed(joint[at] for at in outside)

    def packed(self, words):
        modulus = 1 << 8 * self.size
        return b"".join((word % modulus).to_bytes(self.size, "little") for word in words)

    def answer(self, place):
        out = self.dealt(place)[place][:32]
        for other in self.graph[place]:
            if self.sharing[other]:
                share = self.dealt(other)[place]
                contributed = self.contributors[other]
                out += b"\0" + share[:32] if contributed else b"\1" + share[32:]
        return out

    def sum(self):
        """In the clear, of the contributors' joint words."""
        rows = [self.joint(p) for p in range(len(self.clients)) if self.contributors[p]]
        return [sum(column) for column in zip(*rows)]

    def result(self, place):
        """The sum of its rows, less what it adds itself; then the shared words."""
        own = self.blocks[place]
        total, mine = self.sum(), self.joint(place)
        rows = {at: total[at] - mine[at] for at in own}
        for other in self.graph[place]:
            if self.sharing[other] and self.contributors[other]:
                for at, word in self.row_mask(place, other).items():
                    if at in own:
                        rows[at] -= word
        shared = total[self.length - self.case["shared"]:]
        return self.packed([*rows.values(), *(shared if self.case["everybody_learns_shared"] else [])])

    def check(self):
        yield "roster", self.roster, self.case["roster"]
        for place, client in enumerate(self.clients):
            made = {"hello": self.hello, "shares": self.shares,
                    "shares_received": self.shares_received, "masked_words": self.masked,
                    "contributors_received": lambda _: bits(self.contributors),
                    "answer": self.answer, "result": self.result}
            for field, make in made.items():
                if client[field] is not None:
                    yield f"client {place}, {field}", make(place), client[field]
        shared = self.sum()[self.length - self.case["shared"]:]
        yield "total", self.packed(shared), self.case["total"]


def bits(flags):
    out = bytearray(-(-len(flags) // 8))
    for place, flag in enumerate(flags):
        out[place // 8] |= flag << place % 8
    return bytes(out)


# Checks.

def check_agreement(case):
    session = bytes.fromhex(case["session"])
    a, b = (bytes.fromhex(key) for key in case["secret_keys"])
    public = [x25519(key, BASE).hex() for key in (a, b)]
    both = [agree(session, case["purpose"], one, x25519(other, BASE)).hex()
            for one, other in ((a, b), (b, a))]
    return public == case["public_keys"] and both == [case["agreed"]] * 2


def check_seal(case):
    session, secret = bytes.fromhex(case["session"]), bytes.fromhex(case["pair_secret"])
    return all(
        sealed_message(session, secret, from_, to, number, bytes.fromhex(text)).hex() == sealed
        for from_, to, messages in ((3, 1, case["there"]), (1, 3, case["back"]))
        for number, (text, sealed) in enumerate(messages))


def check_stream(case):
    expected = bytes.fromhex(case["bytes"])
    return stream(case["suite"], bytes.fromhex(case["seed"]), len(expected)) == expected


def check_shares(case):
    made = split(bytes.fromhex(case["secret"]), case["threshold"], len(case["shares"]),
                 bytes.fromhex(case["coefficients_from"]))
    return [share.hex() for share in made] == case["shares"]


def check_graph(case):
    made = graph(len(case["graph"]), case["neighbours"], bytes.fromhex(case["seed"]))
    return made == case["graph"]


def check_degrees(case):
    return all(degree(row[0], case["malicious_server"]) == row for row in case["degrees"])


def check_row_sums(case):
    run, good = Run(case), True
    for name, made, held in run.check():
        if made.hex() != held:
            print(f"  {name} differs")
            good = False
    contributors = [place for place, there in enumerate(run.contributors) if there]
    return good and contributors == case["contributors"]


CHECKS = {
    "agreements": check_agreement,
    "seals": check_seal,
    "streams": check_stream,
    "shares": check_shares,
    "graphs": check_graph,
    "degrees": check_degrees,
    "row_sums": check_row_sums,
}
