"""The distance backend lwe, on module learning with errors: docs/spec/lwe.md."""
import functools
import itertools
import struct
from collections import namedtuple
from operator import mul

from .lwe_numbers import (SIZES, Matrix, Source, coset, digest, error, masked_row, secret,
                          secret_and_error, size_of, wide)
from .messages import bits, opened, sealed
from .pairs import LAST, ONLINE, Pairs, links, packed, pair_refused, run_of, unpacked
from .primitives import (SERVER, Refused, derive, ids, need, number, pieces, stream,
                         universal_hash)

TILE = 64

# A message between clients: what it is, the secret and the ends of its seal, its number under this
# seal, and its text. `place` is the block, for keys.
Message = namedtuple("Message", "kind secret ends count text place")

# A message of answers, and of openings: the round, the tile, and the block and its place.
Shape = namedtuple("Shape", "d tile c block")


class Lwe(Pairs):
    """A run. `seed` is the common seed of the clients, and `suite` the cipher of the masks."""

    def __init__(self, session, bits, codes, secrets, pair, first=0, suite="aes128ctr", seed=None):
        super().__init__(session, bits, codes, secrets, pair, first)
        self.suite, self.seed, self.size = suite, seed, size_of(bits)
        self.filled = [[row + [0] * (self.size.length - bits) for row in rows] for rows in codes]
        self.matrix = functools.cache(lambda: Matrix(session, self.size))

    def derive(self, seed, purpose, *numbers, tags=()):
        return derive(seed, self.session, purpose, ids(*numbers) + b"".join(tags))

    def source(self, seed, expected=4096):
        return Source(self.suite, seed, expected)

    # Tags.

    @functools.cache
    def tag_seed(self, client):
        return self.derive(self.secrets[client], "lwe tags")

    @functools.cache
    def code_tag(self, client, rows):
        """The tag of a client's rows, under its own key. A code is whole words of 8 bytes."""
        size = 8 * -(-self.bits // 64)
        strings = [bits(self.codes[client][row]).ljust(size, b"\0") for row in rows]
        return universal_hash(self.tag_seed(client), strings)

    def row_tag(self, client, row):
        return self.code_tag(client, range(row, row + 1))

    # Blocks, tiles and rounds.

    def blocks(self, owner):
        return pieces(range(len(self.codes[owner])), self.size.columns)

    def tiles(self, evaluator):
        return pieces(range(len(self.codes[evaluator])), TILE)

    @functools.cache
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

    def shapes(self, evaluator, owner):
        """The messages of answers of a pair, and those of openings."""
        return [Shape(d, tile, c, block) for d, blocks in enumerate(self.rounds(evaluator))
                for tile in self.tiles(evaluator)
                for c, (other, block) in enumerate(blocks) if other == owner]

    # What the owner of keys computes.

    @functools.cache
    def keys(self, owner):
        """The secret and the key of each row."""
        size, out = self.size, []
        seed = self.derive(self.secrets[owner], "lwe keys")
        for r, y in enumerate(self.filled[owner]):
            key_seed = self.derive(seed, "lwe key", r, tags=[self.row_tag(owner, r)])
            s, e = secret_and_error(self.source(key_seed, 16 * (size.n + size.length)), y, size)
            out.append((s, [(a + b - 2 * size.tau * bit) % size.modulus
                            for a, b, bit in zip(self.matrix().times(s), e, y, strict=True)]))
        return out

    def key_parts(self, block):
        return pieces(block, max(1, 2**20 // (self.size.length * self.size.q // 8)))

    def key_text(self, owner, part):
        return b"".join(packed(self.keys(owner)[r][1], self.size.q) for r in part)

    def key_messages(self, owner):
        parts = [(place, part) for place, block in enumerate(self.blocks(owner))
                 for part in self.key_parts(block)]
        for count, (place, part) in enumerate(parts):
            yield Message("keys", self.derive(self.seed, "lwe keys", owner), (owner, owner), count,
                          self.key_text(owner, part), place)

    def openings(self, evaluator, owner, d, i, c, block):
        """The openings of a row of the evaluator for the block at place c of a round."""
        size, (_, header) = self.size, self.row(evaluator, d, i)
        residues = [sum(self.codes[owner][r]) % size.t for r in block]
        tags = [universal_hash(self.tag_seed(owner), [packed(header, size.h)]),
                self.code_tag(owner, block)]
        seed = self.derive(self.derive(self.secrets[owner], "lwe opens"), "lwe open", evaluator, d,
                           i, c, tags=tags)
        noise = wide(size.opening, size.t).draw(self.source(seed), residues)
        pads, out = self.pads(evaluator, owner, d, i, c, len(block)), []
        for r, residue, gamma, pad in zip(block, residues, noise, pads, strict=True):
            product = sum(map(mul, header, self.keys(owner)[r][0]))
            out.append(self.rounded(
                (product << size.q - size.h) - size.tau * residue - gamma + pad))
        return out

    # What the evaluator computes.

    @functools.cache
    def hint(self, evaluator, d):
        """It depends on all keys of the round."""
        blocks = self.rounds(evaluator)[d]
        strings = [b"".join(ids(owner, block[0], len(block)) for owner, block in blocks)]
        strings += [self.key_text(owner, part)
                    for owner, block in blocks for part in self.key_parts(block)]
        tag = universal_hash(self.tag_seed(evaluator), strings)
        rows = self.derive(self.secrets[evaluator], "lwe rows")
        return self.derive(rows, "lwe hint", d, tags=[tag])

    @functools.cache
    def row(self, evaluator, d, i):
        """A masked row of a round, and its header."""
        size, seed, tags = self.size, self.hint(evaluator, d), [self.row_tag(evaluator, i)]
        source = self.source(self.derive(seed, "lwe row", i, tags=tags), 16 * size.length)
        w = masked_row(source, self.filled[evaluator][i], size)
        source = self.source(self.derive(seed, "lwe header", i, tags=tags), 60 * size.n)
        noise = wide(size.header, 1).draw(source, [0] * size.n)
        cut = size.q - size.h
        return w, [(a + eta + 2**(cut - 1) >> cut) % 2**size.h
                   for a, eta in zip(self.matrix().after(w), noise, strict=True)]

    def answers(self, evaluator, owner, d, i, c, block):
        """The answers of a row for the block at place c of a round."""
        size, (w, _) = self.size, self.row(evaluator, d, i)
        residue = sum(self.codes[evaluator][i]) % size.t
        seed = self.derive(self.hint(evaluator, d), "lwe answer", i, c,
                           tags=[self.row_tag(evaluator, i)])
        noise = wide(size.answer, size.t).draw(self.source(seed), [residue] * len(block))
        pads = self.pads(evaluator, owner, d, i, c, len(block))
        products = [sum(map(mul, w, self.keys(owner)[r][1])) for r in block]
        return [self.rounded(product + size.tau * residue + g + pad)
                for product, g, pad in zip(products, noise, pads, strict=True)]

    def bit(self, evaluator, owner):
        return self.derive(self.secrets[evaluator], "lwe bit", owner)[0] & 1

    # What both compute.

    def pads_seed(self, evaluator, owner):
        return self.derive(self.secrets[evaluator], "lwe pads", owner)

    @functools.cache
    def pads(self, evaluator, owner, d, i, c, count):
        seed, (_, header) = self.pads_seed(evaluator, owner), self.row(evaluator, d, i)
        tag = universal_hash(self.derive(seed, "lwe pair tags"), [packed(header, self.size.h)])
        words = stream(self.suite, self.derive(seed, "lwe pad", d, i, c, tags=[tag]), 8 * count)
        return [word % self.size.modulus for word in struct.unpack(f"<{count}Q", words)]

    def rounded(self, x):
        """The highest v bits of q."""
        cut = self.size.q - self.size.v
        return (x + 2**(cut - 1) >> cut) % 2**self.size.v

    # Messages.

    @functools.cache
    def exchange(self):
        """The messages between clients by link."""
        size, out, numbers = self.size, {}, {}

        def tell(kind, from_, to, text):
            """A message under the seal of a pair."""
            count = numbers[from_, to] = numbers.get((from_, to), self.first - 1) + 1
            out[from_, to].append(Message(kind, self.pair(from_, to), (from_, to), count, text,
                                          None))

        for evaluator, owner in self.pairs():
            out[owner, evaluator], out[evaluator, owner] = [], []
            tell("start", evaluator, owner,
                 self.pads_seed(evaluator, owner) + bytes([self.bit(evaluator, owner)]))
        for evaluator in {pair[0] for pair in self.pairs()}:
            asked = dict.fromkeys(range(len(self.codes)), 0)
            for d, blocks in enumerate(self.rounds(evaluator)):
                for owner, _ in blocks:
                    for message in self.key_messages(owner):
                        if message.place == asked[owner]:
                            tell("question", evaluator, owner, b"")
                            out[owner, evaluator].append(message)
                    asked[owner] += 1
                seal = self.derive(self.seed, "lwe headers", evaluator, d)
                for count, tile in enumerate(self.tiles(evaluator)):
                    text = b"".join(packed(self.row(evaluator, d, i)[1], size.h) for i in tile)
                    message = Message("headers", seal, (evaluator,) * 2, count, text, None)
                    for owner, _ in blocks:
                        out[evaluator, owner].append(message)
                        tell("question", owner, evaluator, b"")
        return out

    def links(self):
        """The messages between clients."""
        return {link: [(ONLINE, sealed(self.session, m.secret, *m.ends, m.count, m.text))
                       for m in messages] for link, messages in self.exchange().items()}

    def parities(self, evaluator, owner, client):
        bit = self.bit(evaluator, owner)
        return bits([sum(row) & 1 ^ bit for row in self.codes[client]])

    def parts(self, client):
        """A client's parts for the server, for each pair."""
        for evaluator, owner in self.pairs():
            if client not in (evaluator, owner):
                continue
            other, numbers = ((owner, self.answers) if client == evaluator
                              else (evaluator, self.openings))
            texts = [b"".join(packed(numbers(evaluator, owner, d, i, c, block), self.size.v)
                              for i in tile)
                     for d, tile, c, block in self.shapes(evaluator, owner)]
            texts[0] = self.parities(evaluator, owner, client) + texts[0]
            yield [ids(other) + text for text in texts]

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

    def server(self, received):
        """The distances of each pair of evaluator and owner, or who is to blame."""
        told = self.read_parts(received)
        return {(evaluator, owner): self.server_pair(evaluator, owner, told[evaluator, owner],
                                                     told[owner, evaluator])
                for evaluator, owner in self.pairs()}

    def server_pair(self, evaluator, owner, answers, openings):
        """The distances of a pair from the parts of both clients."""
        size, shapes = self.size, self.shapes(evaluator, owner)
        rows, columns = len(self.codes[evaluator]), len(self.codes[owner])
        sides = [self.read_numbers(shapes, texts, *sender)
                 for texts, sender in ((answers, (evaluator, rows, "answers")),
                                       (openings, (owner, columns, "openings")))]
        need(all(len(numbers) == len(shapes) for _, numbers in sides), "parts are missing", SERVER,
             ONLINE, sorted((evaluator, owner)))
        (x_flags, answers), (y_flags, openings) = sides
        flag = lambda flags, place: flags[place // 8] >> place % 8 & 1
        out = [[None] * columns for _ in range(rows)]
        for shape, *both in zip(shapes, answers, openings, strict=True):
            for (i, r), v, g in zip(itertools.product(shape.tile, shape.block), *both, strict=True):
                z = (v - g) % 2**size.v
                d = -size.modulus * (z * size.t + 2**(size.v - 1) >> size.v) % size.t
                odd = flag(x_flags, i) ^ flag(y_flags, r)
                out[i][r] = min(d if d % 2 == odd else d + size.t, self.bits)
        return out

    def read_numbers(self, shapes, texts, client, rows, kind):
        """The parities of a client, and the numbers of each of its messages."""
        need(len(texts) <= len(shapes), f"{kind} after the last", SERVER, ONLINE, [client])
        parities, out = -(-rows // 8), []
        for count, (shape, text) in enumerate(zip(shapes, texts)):
            row = -(-len(shape.block) * self.size.v // 8)
            head = 0 if count else parities
            due = head + len(shape.tile) * row
            need(len(text) == due, f"{len(text)} bytes of {kind}, {due} are due", SERVER, ONLINE,
                 [client])
            out.append([v for part in pieces(text[head:], row)
                        for v in unpacked(part, self.size.v, len(shape.block))])
        return (texts[0][:parities] if texts else b""), out

    # Refusals.

    def check_message(self, held, from_, to, count, data):
        """The receiver's check of a changed message. The others are as in the vectors."""
        if to == SERVER:
            received = {link[0]: [payload for _, payload in messages]
                        for link, messages in held.items() if link[1] == SERVER}
            received[from_][count] = data
            self.server(received)
            return
        honest = self.exchange()[from_, to][count]
        try:
            text = opened(self.session, honest.secret, *honest.ends, honest.count, data)
            due = len(honest.text)
            need(len(text) == due, f"{len(text)} bytes, {due} are due")
            if honest.kind == "start":
                need(text[-1] < 2, "a bit that is not below 2")
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
    yield "distances by answers and openings", found, turned


def lwe_refused(vectors, entry):
    yield from pair_refused(lwe_run(vectors["cases"][entry["case"]]), vectors, entry)


def tables_case(case):
    size = SIZES[case["bits"]]
    for name in ("length", "t", "tau"):
        yield name, getattr(size, name), case[name]
    yield "-Q modulo t", -size.modulus % size.t, case["minus_q"]
    yield "secrets", digest(secret()), case["secrets"]
    for name, table in (("errors", error), ("rows", coset)):
        yield name, [digest(table(size, bit)) for bit in (0, 1)], case[name]
    for name, deviation, t in (("header", size.header, 1), ("answer", size.answer, size.t),
                               ("opening", size.opening, size.t)):
        table = wide(deviation, t)
        made = {"log_k": table.step.bit_length() - 1, "factor": table.factor, "shift": table.f,
                "thresholds": digest(table.table)}
        yield name, made, case[name]


CHECKS = {"lwe": (lwe_case, lwe_refused), "lwe-tables": (tables_case, None)}
