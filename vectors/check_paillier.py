"""Paillier and phe, computed again from PROTOCOLS.md with the Python standard library alone."""
import struct

from check_sums import chacha20, derive, ids, sealed_message

SERVER = 2**32 - 1


class Stream:
    """The key stream of a seed, read on."""

    def __init__(self, seed):
        self.seed, self.at, self.data = seed, 0, b""

    def read(self, count):
        if self.at + count > len(self.data):
            self.data = chacha20(self.seed, 2 * (self.at + count) + 4096)
        self.at += count
        return self.data[self.at - count:self.at]

    def below(self, n, unit):
        """Uniform below n: as many whole units of bytes as n needs, cut to n's bits, until it is below."""
        size = -(-n.bit_length() // (8 * unit)) * unit
        while True:
            x = int.from_bytes(self.read(size), "little") & (1 << n.bit_length()) - 1
            if x < n:
                return x


def check_paillier(case):
    n, p, q = (int(case[name], 16) for name in "npq")
    square = n * n
    plain, others = ([int(x, 16) for x in case[name]] for name in ("plain", "others"))
    get = lambda name: [int(x, 16) for x in case[name]]
    lam = (p - 1) * (q - 1)

    def decrypt(c):
        root = pow(c, lam, square)
        assert root % n == 1
        return root // n * pow(lam, -1, n) % n

    stream = Stream(bytes.fromhex(case["seed"]))
    full = get("full")
    good = [p * q == n]
    for m, c in zip(plain, full, strict=True):
        good.append((1 + m * n) * pow(stream.below(n, 8), n, square) % square == c)
    for name in ("full", "short", "owner"):
        good.append([decrypt(c) for c in get(name)] == plain)
    good.append(len({*full, *get("short"), *get("owner")}) == 3 * len(plain))
    encrypted = get("encrypted_others")
    good.append([decrypt(c) for c in encrypted] == others)
    good.append([a * b % square for a, b in zip(full, encrypted, strict=True)] == get("added"))
    good.append([c * (1 + m * n) % square for c, m in zip(full, others, strict=True)] == get("added_plain"))
    good.append([pow(c, m, square) for c, m in zip(full, others, strict=True)] == get("multiplied"))
    for row, c in zip(case["rows"], get("subset_sums"), strict=True):
        product = 1
        for l, term in enumerate(full):
            if row >> l & 1:
                product = product * term % square
        good.append(product == c)
    for packed in case["packed"]:
        width = packed["width"]
        value = sum(v << i * width for i, v in enumerate(packed["values"]))
        good.append(value == int(packed["plain"], 16))
        good.append(packed["count"] == (n.bit_length() - 1) // width)
    return all(good)


def opened(session, pair_secret, from_, to, number, sealed):
    """ChaCha20 is its own inverse; the tag is compared by sealing again."""
    text = sealed_message(session, pair_secret, from_, to, number, sealed[:-16])[:-16]
    if sealed_message(session, pair_secret, from_, to, number, text) != sealed:
        raise ValueError("a message does not open")
    return text


def check_phe(case):
    session, bits = bytes.fromhex(case["session"]), case["bits"]
    width, size = bits.bit_length(), -(-bits // 8)

    def unpacked(client):
        data = bytes.fromhex(client["codes"])
        rows = [data[i * size:(i + 1) * size] for i in range(client["rows"])]
        return [[row[l // 8] >> 7 - l % 8 & 1 for l in range(bits)] for row in rows]

    x, y = map(unpacked, case["clients"])
    pair = bytes.fromhex(case["pair_secret"])
    own = [bytes.fromhex(client["pair_secret"]) for client in case["clients"]]
    texts = {}
    for message in case["messages"]:
        link = message["from"], message["to"]
        secret = pair if SERVER not in link else own[link[0]]
        known = texts.setdefault(link, [])
        known.append(opened(session, secret, *link, len(known), bytes.fromhex(message["payload"])))
    owner, evaluator = (0, 1) if len(x) <= len(y) else (1, 0)
    x, y = (x, y) if owner == 0 else (y, x)
    modulus, zeros, *ciphertexts = texts[owner, evaluator]
    n = int.from_bytes(modulus, "little")
    slots = (n.bit_length() - 1) // width
    blocks = [x[i:i + slots] for i in range(0, len(x), slots)]
    element = 2 * len(modulus)
    last = struct.pack("<I", SERVER)
    masks = derive(bytes.fromhex(case["clients"][evaluator]["secret"]), session, "masks", ids(evaluator, owner))
    announced, *sums = texts[owner, SERVER]
    good = [
        set(texts) == {(owner, evaluator), (evaluator, owner), (owner, SERVER), (evaluator, SERVER)},
        [len(text) for text in ciphertexts] == [(bits + 1) * element] * len(blocks),
        [len(text) for text in texts[evaluator, owner]] == [len(y) * element] * len(blocks),
        len(zeros) == -(-(n.bit_length() + 256) // 64) * 8 * len(modulus),
        announced == struct.pack("<I", evaluator) + modulus,
        texts[evaluator, SERVER] == [struct.pack("<I", owner) + masks, last],
        sums.pop() == last,
        len(sums) == len(blocks),
    ]
    for text in ciphertexts + texts[evaluator, owner]:
        numbers = [int.from_bytes(text[i:i + element], "little") for i in range(0, len(text), element)]
        good.append(all(0 < c < n * n for c in numbers) and len(set(numbers)) == len(numbers))
    stream = Stream(masks)
    rows = []
    for block, text in zip(blocks, sums):
        good.append(text[:4] == struct.pack("<I", evaluator))
        taus = text[4:]
        columns = []
        for i in range(len(y)):
            tau = int.from_bytes(taus[i * len(modulus):(i + 1) * len(modulus)], "little")
            packed = (tau - stream.below(n, 1)) % n
            good.append(packed >> len(block) * width == 0)
            columns.append([packed >> slot * width & 2**width - 1 for slot in range(len(block))])
        rows += [[column[slot] for column in columns] for slot in range(len(block))]
    distances = [[sum(a != b for a, b in zip(p, q)) for q in y] for p in x]
    flat = [h for row in (rows if owner == 0 else zip(*rows)) for h in row]
    return all(good) and rows == distances and flat == case["distances"]
