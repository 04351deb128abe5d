"""Oblivious transfers and shade, computed again from PROTOCOLS.md with the Python standard library alone."""
import hashlib
import struct

from check_sums import aes128, chacha20, derive, ids, sealed_message

P = 2**255 - 19
ORDER = 2**252 + 27742317777372353535851937790883648493
D = -121665 * pow(121666, -1, P) % P
ROOT = pow(2, (P - 1) // 4, P)  # of -1
SERVER = 2**32 - 1


# ristretto255, RFC 9496.

def negative(x):
    return x % P & 1


def absolute(x):
    return -x % P if negative(x) else x % P


def sqrt_ratio(u, v):
    r = u * pow(v, 3, P) * pow(u * pow(v, 7, P), (P - 5) // 8, P) % P
    check = v * r * r % P
    square = check in (u % P, -u % P)
    if check in (-u % P, -u * ROOT % P):
        r = r * ROOT % P
    return square, absolute(r)


INVSQRT = sqrt_ratio(1, -1 - D)[1]
ADD = P - sqrt_ratio(-D - 1, 1)[1]  # the odd square root of a·d − 1, a = −1


def add(p, q):
    x1, y1, z1, t1 = p
    x2, y2, z2, t2 = q
    a, b = (y1 - x1) * (y2 - x2) % P, (y1 + x1) * (y2 + x2) % P
    c, d = 2 * t1 * t2 * D % P, 2 * z1 * z2 % P
    e, f, g, h = b - a, d - c, d + c, b + a
    return e * f % P, g * h % P, f * g % P, e * h % P


def multiply(scalar, point):
    out = (0, 1, 1, 0)
    while scalar:
        if scalar & 1:
            out = add(out, point)
        point = add(point, point)
        scalar >>= 1
    return out


def minus(p):
    return -p[0] % P, p[1], p[2], -p[3] % P


def decode(data):
    s = int.from_bytes(data, "little")
    assert s < P and not negative(s)
    ss = s * s % P
    u1, u2 = (1 - ss) % P, (1 + ss) % P
    v = (-(D * u1 * u1) - u2 * u2) % P
    square, inv = sqrt_ratio(1, v * u2 * u2 % P)
    dx = inv * u2 % P
    x = absolute(2 * s * dx)
    y = u1 * inv * dx * v % P
    assert square and not negative(x * y) and y
    return x, y, 1, x * y % P


def encode(point):
    x, y, z, t = point
    u1, u2 = (z + y) * (z - y) % P, x * y % P
    inv = sqrt_ratio(1, u1 * u2 * u2 % P)[1]
    d1, d2 = inv * u1 % P, inv * u2 % P
    z_inv = d1 * d2 * t % P
    if negative(t * z_inv):
        x, y, d = y * ROOT % P, x * ROOT % P, d1 * INVSQRT % P
    else:
        d = d2
    if negative(x * z_inv):
        y = -y
    return absolute(d * (z - y)).to_bytes(32, "little")


def elligator(data):
    t = (int.from_bytes(data, "little") & 2**255 - 1) % P
    r = ROOT * t * t % P
    u = (r + 1) * (1 - D * D) % P
    v = (-1 - r * D) * (r + D) % P
    square, s = sqrt_ratio(u, v)
    c = -1
    if not square:
        s, c = -absolute(s * t) % P, r
    n = (c * (r - 1) * (D - 1) ** 2 - v) % P
    w0, w1, w2, w3 = 2 * s * v % P, n * ADD % P, (1 - s * s) % P, (1 + s * s) % P
    return w0 * w3 % P, w2 * w1 % P, w1 * w3 % P, w0 * w2 % P


def uniform(data):
    return add(elligator(data[:32]), elligator(data[32:]))


def generator():
    y = 4 * pow(5, -1, P) % P
    x = absolute(sqrt_ratio(y * y - 1, D * y * y + 1)[1])
    return x, y, 1, x * y % P


G = generator()


# Transfers.

def number(block):
    return int.from_bytes(block, "little")


def block(value):
    return value.to_bytes(16, "little")


def xor(a, b):
    return bytes(x ^ y for x, y in zip(a, b, strict=True))


def field_blocks(f):
    return [range(start, min(128, start + f)) for start in range(0, 128, f)]


class Context:
    def __init__(self, session, sender, receiver):
        self.session = session
        self.digest = hashlib.sha256(b"undertone/v1/transfers" + session + ids(sender, receiver)).digest()

    def derive(self, seed, purpose):
        return derive(seed, self.session, purpose, self.digest)

    def permutation(self, purpose, index):
        text = b"undertone/v1/permutation " + purpose + bytes([index]) + self.digest
        return aes128(hashlib.sha256(text).digest()[:16])


def scalars(context, seed, count):
    wide = chacha20(context.derive(seed, "base transfer scalar"), 64 * count)
    return [number(wide[i:i + 64]) % ORDER for i in range(0, 64 * count, 64)]


def half_hash(context, transfer, side, point):
    text = b"undertone/v1/base transfer point" + context.digest + bytes([transfer, side]) + point
    return uniform(hashlib.sha512(text).digest())


def base_key(context, transfer, side, pair, reply, shared):
    text = (b"undertone/v1/base transfer key" + context.digest + bytes([transfer, side]) + pair + reply + shared)
    return hashlib.sha256(text).digest()[:16]


def base_offer(context, choices, seed):
    halves = scalars(context, seed, 128)
    wide = chacha20(context.derive(seed, "base transfer point"), 128 * 64)
    offer = b""
    for i, half in enumerate(halves):
        random = uniform(wide[64 * i:64 * i + 64])
        other = encode(add(random, random))
        side = choices >> i & 1
        mine = add(multiply(half, G), minus(half_hash(context, i, side, other)))
        mine = encode(add(mine, mine))
        offer += other + mine if side else mine + other
    return offer


def base_reply(context, offer, seed):
    half = scalars(context, seed, 1)[0]
    reply = encode(multiply(2 * half, G))
    keys = []
    for i in range(128):
        pair = offer[64 * i:64 * i + 64]
        sides = []
        for side in range(2):
            mine, other = pair[32 * side:][:32], pair[32 - 32 * side:][:32]
            hashed = half_hash(context, i, side, other)
            shared = multiply(2 * half, add(decode(mine), add(hashed, hashed)))
            sides.append(base_key(context, i, side, pair, reply, encode(shared)))
        keys.append(sides)
    return keys, reply


def mmo(encrypt, x):
    return xor(encrypt(x), x)


def tmmo(encrypt, x, tweak):
    y = encrypt(x)
    return xor(encrypt(xor(y, block(tweak))), y)


def total(blocks):
    out = bytes(16)
    for one in blocks:
        out = xor(out, one)
    return out


def trees(context, f, malicious, keys):
    pi = [context.permutation(b"tree", i) for i in range(3)]
    leaves, message = [], b""
    for index, bits in enumerate(field_blocks(f)):
        levels = [keys[i] for i in reversed(bits)]
        nodes = list(levels[0])
        for level in levels[1:]:
            left, right = [[mmo(p, s) for s in nodes] for p in pi[:2]]
            message += xor(total(left), level[0]) + xor(total(right), level[1])
            nodes = [child for both in zip(left, right) for child in both]
        if malicious:
            checks = [(mmo(pi[1], s), mmo(pi[2], s)) for s in nodes]
            message += total(a for a, _ in checks) + total(b for _, b in checks)
            text = b"undertone/v1/tree check" + context.digest + bytes([index])
            message += hashlib.sha256(text + b"".join(a + b for a, b in checks)).digest()
            nodes = [mmo(pi[0], s) for s in nodes]
        leaves.append(nodes)
    return leaves, message


class Extension:
    """Both sides of an extension, from both seeds."""

    def __init__(self, session, sender, receiver, seeds, f, malicious):
        self.context = Context(session, sender, receiver)
        self.f, self.malicious = f, malicious
        self.delta = number(chacha20(self.context.derive(seeds[0], "delta"), 16))
        self.offer = base_offer(self.context, ~self.delta, seeds[0])
        keys, reply = base_reply(self.context, self.offer, seeds[1])
        leaves, message = trees(self.context, f, malicious, keys)
        self.setup = reply + message
        self.leaves = [[aes128(leaf) for leaf in block_] for block_ in leaves]
        self.pi = self.context.permutation(b"extension", 0)
        self.chunk = self.transfers = 0

    def rows(self, bits):
        """The next chunk's first bits: u of each block, and the rows of v, as numbers."""
        us, vs = [], []
        blocks = -(-bits // 128)
        for leaves in self.leaves:
            streams = [number(b"".join(leaf(block(16 * self.chunk + n)) for n in range(blocks)))
                       for leaf in leaves]
            sums = [0] * len(leaves).bit_length()
            for x, stream in enumerate(streams):
                for b in range(len(sums) - 1):
                    sums[b] ^= stream if x >> b & 1 else 0
                sums[-1] ^= stream
            us.append(sums[-1])
            vs += sums[:-1]
        self.chunk += 1
        return us, vs

    def batch(self, count):
        words = -(-count // 64) + self.malicious
        us, vs = self.rows(64 * words)
        kept = 2**(64 * words) - 1
        corrections = b"".join(((u ^ us[0]) & kept).to_bytes(8 * words, "little") for u in us[1:])
        keys = [sum((v >> t & 1) << r for r, v in enumerate(vs)) for t in range(count)]
        zeros = [key ^ (self.delta if us[0] >> t & 1 else 0) for t, key in enumerate(keys)]
        first, self.transfers = self.transfers, self.transfers + count
        return corrections, us[0], vs, keys, zeros, first, words

    def randomise(self, key, transfer):
        if self.malicious:
            return tmmo(self.pi, block(key), transfer)
        return mmo(self.pi, block(key))


def field_product(a, b):
    product = 0
    for i in range(64):
        if b >> i & 1:
            product ^= a << i
    for i in range(127, 63, -1):
        if product >> i & 1:
            product ^= (2**64 | 0b11011) << i - 64
    return product


def proof(point, choices, vs, first, words):
    def hashed(row):
        out, power = 0, 1
        for k in range(words):
            power = field_product(power, point) if k + 1 < words else 1
            out ^= field_product(power, row >> 64 * k & 2**64 - 1)
        return out.to_bytes(8, "little")
    text = b"undertone/v1/transfer check" + struct.pack("<Q", first) + b"".join(hashed(v) for v in vs)
    return hashed(choices) + hashlib.sha256(text).digest()


def check_extension(case):
    session = bytes.fromhex(case["session"])
    seeds = [bytes.fromhex(case["sender_seed"]), bytes.fromhex(case["receiver_seed"])]
    made = Extension(session, 0, 1, seeds, case["field"], case["malicious"])
    same = [block(made.delta).hex() == case["delta"], made.offer.hex() == case["offer"],
            made.setup.hex() == case["setup"]]
    for batch in case["batches"]:
        count = batch["count"]
        corrections, choices, vs, keys, zeros, first, words = made.batch(count)
        point = int.from_bytes(bytes.fromhex(batch["challenge"]), "little")
        proved = proof(point, choices, vs, first, words).hex() if case["malicious"] else ""
        bits = choices & 2**count - 1
        hashed = [[made.randomise(z ^ d, first + t) for t, z in enumerate(zeros)] for d in (0, made.delta)]
        got = [hashed[bits >> t & 1][t] for t in range(count)]
        whole = bits.to_bytes(8 * -(-count // 64), "little")
        same += [corrections.hex() == batch["corrections"], proved == batch["proof"],
                 whole.hex() == batch["choices"],
                 b"".join(map(block, zeros)).hex() == batch["zeros"],
                 b"".join(map(block, keys)).hex() == batch["chosen"],
                 b"".join(hashed[0]).hex() == batch["random_zeros"],
                 b"".join(hashed[1]).hex() == batch["random_ones"],
                 b"".join(got).hex() == batch["random_chosen"]]
    chosen = case["chosen"]
    wanted = bytes.fromhex(chosen["wanted"])
    same.append(xor(wanted, whole).hex() == chosen["changes"])
    messages = bytes.fromhex(chosen["messages"])
    offered = opened = b""
    for t in range(count):
        pair = [messages[32 * t:32 * t + 16], messages[32 * t + 16:32 * t + 32]]
        swap = number(xor(wanted, whole)) >> t & 1
        offered += xor(pair[0], hashed[swap][t]) + xor(pair[1], hashed[1 - swap][t])
        opened += pair[number(wanted) >> t & 1]
    same += [offered.hex() == chosen["offered"], opened.hex() == chosen["opened"]]
    return all(same)


# Shade: one tile, one message of offers.

def packed(numbers, width):
    value = sum((n % 2**width) << i * width for i, n in enumerate(numbers))
    return value.to_bytes(-(-len(numbers) * width // 8), "little")


def check_shade(case):
    session, bits = bytes.fromhex(case["session"]), case["bits"]
    width, size = bits.bit_length(), -(-bits // 8)
    sender, receiver = case["clients"]

    def unpacked(client):
        data = bytes.fromhex(client["codes"])
        rows = [data[i * size:(i + 1) * size] for i in range(client["rows"])]
        return [[row[l // 8] >> 7 - l % 8 & 1 for l in range(bits)] for row in rows]

    x, y = unpacked(sender), unpacked(receiver)
    lanes, rows = len(x), len(y)
    f = 4 if 4 * bits <= 17 * lanes else 8
    seeds = [derive(bytes.fromhex(client["secret"]), session, "transfers", ids(me, 1 - me))
             for me, client in enumerate(case["clients"])]
    made = Extension(session, 0, 1, seeds, f, False)
    us, vs = made.rows(2048)
    corrections = b"".join((u ^ us[0]).to_bytes(256, "little") for u in us[1:])
    keys = [sum((v >> t & 1) << r for r, v in enumerate(vs)) for t in range(rows * bits)]
    request = b""
    for i, row in enumerate(y):
        random = us[0] >> i * bits & 2**bits - 1
        wanted = sum(bit << l for l, bit in enumerate(row))
        request += (random ^ wanted).to_bytes(8 * -(-bits // 64), "little")
    pi = made.context.permutation(b"vectors", 0)

    def expand(key, transfer):
        tweaks = [transfer << 64 | b for b in range(-(-lanes // 8))]
        data = b"".join(tmmo(pi, block(key), tweak) for tweak in tweaks)
        return struct.unpack(f"<{lanes}H", data[:2 * lanes])

    offers, r, t = b"", [], []
    for i, row in enumerate(y):
        sums, got, group = [0] * lanes, [0] * lanes, []
        for l, choice in enumerate(row):
            transfer = i * bits + l
            zero = keys[transfer] ^ (made.delta if choice else 0)
            g0, g1 = expand(zero, transfer), expand(zero ^ made.delta, transfer)
            u = [g0[a] + 1 - 2 * x[a][l] - g1[a] for a in range(lanes)]
            for a in range(lanes):
                sums[a] += g0[a] - x[a][l]
                got[a] += g1[a] + u[a] if choice else g0[a]
            group.append(u)
            if len(group) == 16 or l + 1 == bits:
                words = -(-len(group) * width // 16)
                columns = [sum((u[a] % 2**width) << n * width for n, u in enumerate(group)) for a in range(lanes)]
                offers += b"".join(struct.pack("<H", c >> 16 * word & 0xffff)
                                   for word in range(words) for c in columns)
                group = []
        r += sums
        t += got
    pair = bytes.fromhex(case["pair_secret"])
    own = [bytes.fromhex(client["pair_secret"]) for client in case["clients"]]
    last = struct.pack("<I", SERVER)
    due = {
        (0, 1): [sealed_message(session, pair, 0, 1, 0, made.offer), offers],
        (1, 0): [sealed_message(session, pair, 1, 0, n, text)
                 for n, text in enumerate([made.setup, corrections, request])],
        (0, SERVER): [sealed_message(session, own[0], 0, SERVER, n, text)
                      for n, text in enumerate([struct.pack("<I", 1) + packed(r, width), last])],
        (1, SERVER): [sealed_message(session, own[1], 1, SERVER, n, text)
                      for n, text in enumerate([struct.pack("<I", 0) + packed(t, width), last])],
    }
    sent = {}
    for message in case["messages"]:
        sent.setdefault((message["from"], message["to"]), []).append(bytes.fromhex(message["payload"]))
    good = True
    for link, texts in due.items():
        if sent.get(link) != texts:
            print(f"  messages from {link[0]} to {link[1]} differ")
            good = False
    distances = [sum(p != q for p, q in zip(a, b)) for a in x for b in y]
    apart = [(t[i * lanes + a] - r[i * lanes + a]) % 2**width for a in range(lanes) for i in range(rows)]
    return good and set(sent) == set(due) and distances == apart == case["distances"]
