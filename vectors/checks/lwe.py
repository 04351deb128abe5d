"""The distance backend lwe, on module learning with errors: docs/spec/lwe.md."""
import functools
from collections import namedtuple
from operator import mul

from .lwe_numbers import (SIZES, Matrix, Source, bit_differences, coset, digest, masked_row,
                          size_of, wide)
from .messages import bits, opened, sealed
from .pairs import LAST, ONLINE, Pairs, links, packed, pair_refused, run_of, unpacked
from .primitives import SERVER, Refused, derive, ids, need, number, pieces

TILE = 64

# A message between clients: what it is, the secret and the ends of its seal, its number under this
# seal, and its text. `place` is the block for keys, and whether they are the first for answers.
Message = namedtuple("Message", "kind secret ends count text place")


class Lwe(Pairs):
    """A run. `seed` is the common seed of the clients, and `suite` the cipher of the masks."""

    def __init__(self, session, bits, codes, secrets, pair, first=0, suite="aes128ctr", seed=None):
        super().__init__(session, bits, codes, secrets, pair, first)
        self.suite, self.seed, self.size = suite, seed, size_of(bits)
        self.filled = [[row + [0] * (self.size.length - bits) for row in rows] for rows in codes]
        self.matrix = functools.cache(lambda: Matrix(session, self.size))

    def derive(self, seed, purpose, *numbers):
        return derive(seed, self.session, purpose, ids(*numbers))

    def source(self, seed, expected=4096):
        return Source(self.suite, seed, expected)

    def blocks(self, owner):
        return pieces(range(len(self.codes[owner])), self.size.columns)

    def tiles(self, evaluator):
        return pieces(range(len(self.codes[evaluator])), TILE)

    def rounds(self, evaluator):
        """The blocks of each round of an evaluator, each with its owner."""
        owners = [owner for other, owner in self.pairs() if other == evaluator]
        owners.sort(key=lambda owner: (-len(self.codes[owner]), owner))
        out = [[]]
        for owner in owners:
            for block in self.blocks(owner):
                if sum(len(other) for _, other in out[-1]) + len(block) > self.size.columns:
                    out.append([])
                out[-1].append((owner, block))
        return out

    # What the owner of keys computes.

    @functools.cache
    def keys(self, owner):
        """The secret and the key of each row."""
        size, out = self.size, []
        seed = self.derive(self.secrets[owner], "lwe keys")
        for r, y in enumerate(self.filled[owner]):
            source = self.source(self.derive(seed, "lwe key", r), size.n // 4 + size.length // 2)
            s, e = bit_differences(source, size.n, size.length)
            product = self.matrix().times(s)
            out.append((s, [(a + b - 2 * size.tau * bit) % size.modulus
                            for a, b, bit in zip(product, e, y, strict=True)]))
        return out

    def key_messages(self, owner):
        secret, length = self.derive(self.seed, "lwe keys", owner), self.size.length * self.size.q
        parts = [(place, part) for place, block in enumerate(self.blocks(owner))
                 for part in pieces(block, 2**20 // (length // 8))]
        for count, (place, part) in enumerate(parts):
            text = b"".join(packed(self.keys(owner)[r][1], self.size.q) for r in part)
            yield Message("keys", secret, (owner, owner), count, text, place)

    def masked_distance(self, header, answer, s, y):
        size = self.size
        z = ((answer << size.h - size.v) - sum(map(mul, header, s))) % 2**size.h
        u = -size.modulus * (z * size.t + 2**(size.h - 1) >> size.h)
        return (u + sum(y)) % size.t

    # What the evaluator computes.

    def masks_seed(self, evaluator, owner):
        return self.derive(self.secrets[evaluator], "lwe masks", evaluator, owner)

    def masks(self, seed, evaluator, owner):
        rows, columns = len(self.codes[evaluator]), len(self.codes[owner])
        numbers = self.source(seed, 16 * rows * columns).numbers(rows * columns)
        return pieces([a * self.size.t >> 128 for a in numbers], columns)

    def bit(self, evaluator, owner):
        return self.derive(self.secrets[evaluator], "lwe bit", owner)[0] & 1

    @functools.cache
    def row(self, evaluator, d, i):
        """A masked row of a round, and its header."""
        size, seed = self.size, self.hint(evaluator, d)
        source = self.source(self.derive(seed, "lwe row", i), 16 * size.length)
        w = masked_row(source, self.filled[evaluator][i], size)
        source = self.source(self.derive(seed, "lwe header", i), 60 * size.n)
        noise = wide(size.header, 1).draw(source, [0] * size.n)
        cut = size.q - size.h
        return w, [(a + g + 2**(cut - 1) >> cut) % 2**size.h
                   for a, g in zip(self.matrix().after(w), noise, strict=True)]

    def hint(self, evaluator, d):
        return self.derive(self.derive(self.secrets[evaluator], "lwe rows"), "lwe hint", d)

    def answers(self, evaluator, d, i, c, owner, block):
        """The answers of a row for the block at place c of a round."""
        size, (w, _) = self.size, self.row(evaluator, d, i)
        masks = self.masks_of(evaluator, owner)[i]
        residues = [(masks[r] + sum(self.codes[evaluator][i])) % size.t for r in block]
        source = self.source(self.derive(self.hint(evaluator, d), "lwe answer", i, c))
        noise, cut = wide(size.answer, size.t).draw(source, residues), size.q - size.v
        return [(sum(map(mul, w, self.keys(owner)[r][1])) + size.tau * residue + g
                 + 2**(cut - 1) >> cut) % 2**size.v
                for r, residue, g in zip(block, residues, noise, strict=True)]

    @functools.cache
    def masks_of(self, evaluator, owner):
        return self.masks(self.masks_seed(evaluator, owner), evaluator, owner)

    # Messages.

    @functools.cache
    def exchange(self):
        """The messages between clients by link, and the masked distances of each pair by message,
        as their owner finds them."""
        size, out, found = self.size, {}, {}
        numbers = {}

        def tell(kind, from_, to, text, place=None):
            """A message under the seal of a pair."""
            count = numbers[from_, to] = numbers.get((from_, to), self.first - 1) + 1
            out[from_, to].append(Message(kind, self.pair(from_, to), (from_, to), count, text,
                                          place))

        for evaluator, owner in self.pairs():
            out[owner, evaluator] = []
            out[evaluator, owner], found[evaluator, owner] = [], []
        for evaluator in {pair[0] for pair in self.pairs()}:
            answered, asked = set(), dict.fromkeys(range(len(self.codes)), 0)
            for d, blocks in enumerate(self.rounds(evaluator)):
                for owner, _ in blocks:
                    for message in self.key_messages(owner):
                        if message.place == asked[owner]:
                            tell("question", evaluator, owner, b"")
                            out[owner, evaluator].append(message)
                    asked[owner] += 1
                secret = self.derive(self.seed, "lwe headers", evaluator, d)
                for count, tile in enumerate(self.tiles(evaluator)):
                    headers = [self.row(evaluator, d, i)[1] for i in tile]
                    text = b"".join(packed(header, size.h) for header in headers)
                    message = Message("headers", secret, (evaluator,) * 2, count, text, d)
                    for owner in dict(blocks):
                        out[evaluator, owner].append(message)
                    for c, (owner, block) in enumerate(blocks):
                        rows = [self.answers(evaluator, d, i, c, owner, block) for i in tile]
                        first = owner not in answered
                        text = b"".join(packed(row, size.v) for row in rows)
                        text += bytes([self.bit(evaluator, owner)] * first)
                        tell("answers", evaluator, owner, text, first)
                        tell("question", owner, evaluator, b"")
                        answered.add(owner)
                        masked = [
                            self.masked_distance(header, v, self.keys(owner)[r][0],
                                                 self.codes[owner][r])
                            for header, row in zip(headers, rows) for r, v in zip(block, row)
                        ]
                        found[evaluator, owner].append(masked)
        return out, found

    def links(self):
        """The messages between clients."""
        return {link: [(ONLINE, sealed(self.session, m.secret, *m.ends, m.count, m.text))
                       for m in messages] for link, messages in self.exchange()[0].items()}

    def parities(self, evaluator, owner, client):
        bit = self.bit(evaluator, owner)
        return bits([sum(row) & 1 ^ bit for row in self.codes[client]])

    def parts(self, client):
        """A client's parts for the server, for each pair."""
        for pair, found in self.exchange()[1].items():
            evaluator, owner = pair
            if client == evaluator:
                seed = self.masks_seed(*pair)
                yield [ids(owner) + seed + self.parities(*pair, evaluator)]
            elif client == owner:
                yield [ids(evaluator) + self.parities(*pair, owner)] + [
                    ids(evaluator) + packed(numbers, self.size.width) for numbers in found]

    def to_server(self, client, payloads):
        """Whether the payloads are the parts, then done. Parts of different pairs may come in any
        order."""
        due = list(self.parts(client))
        for count, payload in enumerate(payloads):
            text = self.open(client, SERVER, count, payload, ONLINE)
            if text == LAST:
                return not any(due) and count == len(payloads) - 1
            fitting = [texts for texts in due if texts[:1] == [text]]
            if not fitting:
                return False
            fitting[0].pop(0)
        return False

    def read_parts(self, received):
        """The parts, by their sender and the client that they are about."""
        able = {*self.pairs(), *((owner, evaluator) for evaluator, owner in self.pairs())}
        out = {link: [] for link in able}
        for client, payloads in received.items():
            for count, data in enumerate(payloads):
                text = self.open(client, SERVER, count, data, ONLINE)
                if text == LAST:
                    break
                need(len(text) >= 4, f"{len(text)} bytes of a part", SERVER, ONLINE, [client])
                about = number(text[:4])
                if about < len(self.codes):
                    need((client, about) in able, "a part about a client with which there is none",
                         SERVER, ONLINE, [client])
                    out[client, about].append(text[4:])
        return out

    def shapes(self, evaluator, owner):
        """The tile and the block of each message of answers of a pair."""
        return [(tile, block) for blocks in self.rounds(evaluator)
                for tile in self.tiles(evaluator) for other, block in blocks if other == owner]

    def server(self, received):
        """The distances of each pair of evaluator and owner, or who is to blame."""
        told = self.read_parts(received)
        return {(evaluator, owner): self.server_pair(evaluator, owner, told[evaluator, owner],
                                                     told[owner, evaluator])
                for evaluator, owner in self.pairs()}

    def server_pair(self, evaluator, owner, there, back):
        """The distances of a pair from the parts of both clients."""
        size, shapes = self.size, self.shapes(evaluator, owner)
        rows, columns = len(self.codes[evaluator]), len(self.codes[owner])
        both = SERVER, ONLINE, sorted((evaluator, owner))
        need(len(there) < 2, "a second seed", SERVER, ONLINE, [evaluator])
        need(len(back) < 2 + len(shapes), "masked distances after the last", SERVER, ONLINE,
             [owner])
        counts = [len(tile) * len(block) for tile, block in shapes]
        lengths = [-(-columns // 8)] + [-(-count * size.width // 8) for count in counts]
        self.need_lengths(there, [32 + -(-rows // 8)], evaluator)
        self.need_lengths(back, lengths, owner)
        need(there and len(back) == len(lengths), "parts are missing", *both)
        seed, x_flags, (y_flags, *texts) = there[0][:32], there[0][32:], back
        masks = self.masks(seed, evaluator, owner)
        flag = lambda flags, place: flags[place // 8] >> place % 8 & 1
        out = [[None] * columns for _ in range(rows)]
        for (tile, block), count, text in zip(shapes, counts, texts, strict=True):
            numbers = iter(unpacked(text, size.width, count))
            for i in tile:
                for r in block:
                    masked = next(numbers)
                    need(masked < size.t, "t or more, so a distance above L", *both)
                    d = (masked - masks[i][r]) % size.t
                    odd = flag(x_flags, i) ^ flag(y_flags, r)
                    out[i][r] = d if d % 2 == odd else d + size.t
        need(max(map(max, out)) <= self.bits, "a distance above L", *both)
        return out

    def need_lengths(self, texts, lengths, client):
        for text, due in zip(texts, lengths):
            need(len(text) == due, f"{len(text)} bytes, {due} are due", SERVER, ONLINE, [client])

    # Refusals.

    def check_message(self, held, from_, to, count, data):
        """The receiver's check of a changed message. The others are as in the vectors."""
        if to == SERVER:
            received = {link[0]: [payload for _, payload in messages]
                        for link, messages in held.items() if link[1] == SERVER}
            received[from_][count] = data
            self.server(received)
            return
        messages = self.exchange()[0][from_, to]
        honest = messages[count]
        try:
            text = opened(self.session, honest.secret, *honest.ends, honest.count, data)
            due = len(honest.text)
            need(len(text) == due, f"{len(text)} bytes, {due} are due")
            if honest.kind == "answers" and honest.place:
                need(text[-1] < 2, "a bit that is not below 2")
            if honest.kind == "keys":
                texts = [m.text for m in messages if m.place == honest.place and m is not honest]
                keys = pieces(b"".join([text, *texts]), self.size.length * self.size.q // 8)
                need(len({key[:32] for key in keys}) == len(keys), "a key twice")
        except Refused as refusal:
            raise Refused(str(refusal), to, ONLINE, [from_]) from None


def lwe_run(case):
    return run_of(case, Lwe, suite=case["suite"], seed=bytes.fromhex(case["seed"]))


def lwe_case(case):
    run, held = lwe_run(case), links(case["messages"])
    for link, messages in run.links().items():
        yield f"messages of link {link}", held.get(link), messages
    to_server = {client: [payload for _, payload in held[client, SERVER]] for client in range(2)}
    for client, payloads in to_server.items():
        yield f"what client {client} tells the server", run.to_server(client, payloads), True
    yield "links", set(held), {*run.links(), (0, SERVER), (1, SERVER)}
    distances = run.distances(0, 1)
    (pair, found), = run.server(to_server).items()
    yield "distances", [h for row in distances for h in row], case["distances"]
    turned = distances if pair == (0, 1) else list(map(list, zip(*distances)))
    yield "distances by masked distances", found, turned


def lwe_refused(vectors, entry):
    yield from pair_refused(lwe_run(vectors["cases"][entry["case"]]), vectors, entry)


def tables_case(case):
    size = SIZES[case["bits"]]
    for name in ("t", "tau"):
        yield name, getattr(size, name), case[name]
    yield "-Q modulo t", -size.modulus % size.t, case["minus_q"]
    yield "masked rows", [digest(coset(size, bit)) for bit in (0, 1)], case["rows"]
    for name, table in (("header", wide(size.header, 1)), ("answer", wide(size.answer, size.t))):
        made = {"log_k": table.step.bit_length() - 1, "factor": table.factor, "shift": table.f,
                "thresholds": digest(table.table)}
        yield name, made, case[name]


CHECKS = {"lwe": (lwe_case, lwe_refused), "lwe-tables": (tables_case, None)}
