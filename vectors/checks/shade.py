"""The distance backend shade, on oblivious transfers: docs/spec/shade.md."""
import struct

from .messages import Reader
from .pairs import LAST, OFFLINE, ONLINE, Pairs, links, packed, pair_refused, run_of, unpacked
from .primitives import (SERVER, Refused, derive, ids, need, number, pieces, unhex, universal_hash,
                         xor)
from .transfers import (Context, Extension, base_reply, block, columns, reply_point, setup_length,
                        tmmo, whole)

CHUNK = 2048


def expand(pi, keys, first, lanes):
    """A row of numbers of 16 bits for each transfer."""
    blocks = -(-lanes // 8)
    tweaks = [
        transfer << 64 | b for transfer in range(first, first + len(keys)) for b in range(blocks)
    ]
    data = tmmo(pi, b"".join(key * blocks for key in keys), tweaks)
    return [struct.unpack(f"<{lanes}H", part[:2 * lanes]) for part in pieces(data, 16 * blocks)]


def group_bytes(rows, width):
    """A group: the first words of all lanes, then the second words, and so on."""
    words = -(-len(rows) * width // 16)
    strings = [sum((u % 2**width) << n * width for n, u in enumerate(lane)) for lane in zip(*rows)]
    return b"".join(
        struct.pack("<H", s >> 16 * word & 0xFFFF) for word in range(words) for s in strings)


def correlated(pi, width, first, delta, zeros, bits, choices):
    """The groups of one row of the receiver, and the sums of both sides, lane by lane, not
    reduced."""
    lanes = len(bits[0])
    ones = [xor(key, block(delta)) for key in zeros]
    pairs = list(zip(expand(pi, zeros, first, lanes), expand(pi, ones, first, lanes)))
    offers = [[a + 1 - 2 * x - b for a, b, x in zip(*pair, row)] for pair, row in zip(pairs, bits)]
    sent = [sum(lane) for lane in zip(*(pair[0] for pair in pairs))]
    got = [sum(pair[1][a] + u[a] if c else pair[0][a] for pair, u, c in zip(pairs, offers, choices))
           for a in range(lanes)]
    return [group_bytes(offers[i:i + 16], width) for i in range(0, len(offers), 16)], sent, got


class Offers:
    """The offers of a tile: the groups of each message, and the seed of the hash key."""

    def __init__(self, seed, messages):
        self.seed, self.messages = seed, messages

    def digest(self, changed=None, data=b""):
        """The digest, also with other data in the place of one message."""
        groups = []
        for n, message in enumerate(self.messages):
            for group in message:
                if n == changed:
                    group, data = data[:len(group)], data[len(group):]
                groups.append(group)
        return universal_hash(self.seed, groups)


class Pair:
    """The messages of sender and receiver, to each other and to the server."""

    def __init__(self, run, sender, receiver, members):
        self.run, self.sender, self.receiver = run, sender, receiver
        x, self.y = run.codes[sender], run.codes[receiver]
        self.lanes, self.bits, self.width = len(x), run.bits, run.width
        self.x, self.ones = list(map(list, zip(*x))), list(map(sum, x))  # by bit, and by row
        f = 4 if 4 * self.bits <= 17 * self.lanes else 8
        seeds = [derive(run.secrets[me], run.session, "transfers", ids(me, other))
                 for me, other in ((sender, receiver), (receiver, sender))]
        self.made = Extension(run.session, b"distances", sender, receiver, seeds, f, False)
        self.chunk_bytes = (len(self.made.leaves) - 1) * CHUNK // 8
        chunks = -(-len(self.y) * self.bits // CHUNK)
        self.ahead = min(chunks, 2**26 // (members - 1) // 2**15)
        parts = [self.made.rows(CHUNK) for _ in range(chunks)]
        self.corrections = [
            b"".join((u ^ us[0]).to_bytes(CHUNK // 8, "little") for u in us[1:]) for us, _ in parts
        ]
        self.random = sum(us[0] << CHUNK * n for n, (us, _) in enumerate(parts))
        self.keys = [block(key) for _, vs in parts for key in columns(vs, CHUNK)]
        size = max(1, min(2**16 // self.bits, 2**19 // self.lanes))
        self.tiles = [range(i, min(len(self.y), i + size)) for i in range(0, len(self.y), size)]
        self.online()

    def online(self):
        pi, done = self.made.context.permutation("vectors", 0), self.ahead
        each = max(1, 2**21 // (2 * self.width * self.lanes))
        self.requests, self.offers, self.sums = [], [], ([], [])
        for count, tile in enumerate(self.tiles):
            needed = -(-tile.stop * self.bits // CHUNK)
            request = b"".join(self.corrections[done:needed])
            done, groups, sums = max(done, needed), [], ([], [])
            for i in tile:
                first, row = i * self.bits, self.y[i]
                random = self.random >> first & 2**self.bits - 1
                request += whole(random ^ sum(bit << l for l, bit in enumerate(row)), self.bits)
                keys = self.keys[first:first + self.bits]
                zeros = [
                    xor(key, block(self.made.delta)) if c else key for key, c in zip(keys, row)
                ]
                parts, sent, got = correlated(pi, self.width, first, self.made.delta, zeros, self.x,
                                              row)
                groups += parts
                sums[0].extend(s - ones for s, ones in zip(sent, self.ones))
                sums[1].extend(got)
            context = ids(self.receiver, self.sender, count)
            seed = derive(self.run.secrets[self.receiver], self.run.session, "hash of offers",
                          context)
            self.requests.append(request + seed)
            self.offers.append(Offers(seed, list(pieces(groups, each))))
            for side, numbers, other in zip(self.sums, sums, (self.receiver, self.sender)):
                side.append(ids(other) + packed(numbers, self.width))

    def forward(self):
        """The phase and the payload of the messages from the sender to the receiver."""
        seal = lambda n, text: self.run.seal(self.sender, self.receiver, n, text)
        out = [(OFFLINE, seal(0, self.made.offer))]
        for n, offers in enumerate(self.offers, 1):
            out += [(ONLINE, b"".join(groups)) for groups in offers.messages]
            out.append((ONLINE, seal(n, offers.digest())))
        return out

    def offered(self, count):
        """The offers of the tile to which message `count` of the sender belongs, the message's
        number among those of the tile, and the number of the tile."""
        for n, offers in enumerate(self.offers):
            if count <= len(offers.messages) + 1:
                return offers, count - 1, n
            count -= len(offers.messages) + 1

    def backward(self):
        each = 2**20 // self.chunk_bytes
        texts = [(OFFLINE, self.made.setup)]
        for n in range(0, self.ahead, each):
            texts.append((OFFLINE, b"".join(self.corrections[n:min(self.ahead, n + each)])))
        texts += [(ONLINE, request) for request in self.requests]
        return [(phase, self.run.seal(self.receiver, self.sender, n, text))
                for n, (phase, text) in enumerate(texts)]


class Shade(Pairs):
    def __init__(self, session, bits, codes, secrets, pair, first=0, members=2):
        super().__init__(session, bits, codes, secrets, pair, first)
        self.exchanges = {pair: Pair(self, *pair, members) for pair in self.pairs()}

    def links(self):
        """The messages between clients."""
        out = {}
        for (sender, receiver), pair in self.exchanges.items():
            out[sender, receiver], out[receiver, sender] = pair.forward(), pair.backward()
        return out

    def reports(self, client):
        """A client's reports to the server for each pair, tile by tile."""
        return [
            pair.sums[link.index(client)] for link, pair in self.exchanges.items() if client in link
        ]

    def to_server(self, client, payloads):
        """Whether the payloads are the reports, then the end. Reports of different pairs may come
        in any order."""
        due = self.reports(client)
        for count, payload in enumerate(payloads):
            text = self.open(client, SERVER, count, payload, ONLINE)
            if text == LAST:
                return not any(due) and count == len(payloads) - 1
            fitting = [texts for texts in due if texts[:1] == [text]]
            if not fitting:
                return False
            fitting[0].pop(0)
        return False

    def server(self, payloads):
        """The distances of each pair of sender and receiver, or who is to blame."""
        sums = {}
        for client, received in payloads.items():
            for count, data in enumerate(received):
                reader = Reader(self.open(client, SERVER, count, data, ONLINE))
                about = reader.number(4)
                links = {(client, about), (about, client)}
                able = about >= len(self.codes) or links & set(self.exchanges)
                need(able, "sums about a client with whom there are none", SERVER, ONLINE, [client])
                sums.setdefault((client, about), []).append(reader.data)
        out = {}
        for (sender, receiver), pair in self.exchanges.items():
            rows = []
            both = [sums.get(link, []) for link in ((sender, receiver), (receiver, sender))]
            for side, client in zip(both, (sender, receiver)):
                blame = SERVER, ONLINE, sorted((sender, receiver))
                need(len(side) == len(pair.tiles), f"sums of client {client} are missing", *blame)
            for tile, *sides in zip(pair.tiles, *both):
                numbers = [unpacked(side, self.width, len(tile) * pair.lanes) for side in sides]
                apart = [(t - r) % 2**self.width for r, t in zip(*numbers)]
                need(max(apart) <= self.bits, "a distance above L", SERVER, ONLINE,
                     sorted((sender, receiver)))
                rows += pieces(apart, pair.lanes)
            out[sender, receiver] = [list(lane) for lane in zip(*rows)]
        return out

    def check_message(self, held, from_, to, count, data):
        """The receiver's check of a changed message. The others are as in the vectors."""
        if to == SERVER:
            received = {link[0]: [payload for _, payload in messages]
                        for link, messages in held.items() if link[1] == SERVER}
            received[from_][count] = data
            self.server(received)
            return
        phase, honest = self.links()[from_, to][count]
        pair = self.exchanges.get((from_, to)) or self.exchanges[to, from_]
        try:
            if from_ == pair.sender and count > 0:
                self.check_offers(pair, count, data, honest)
                return
            text = self.open(from_, to, count, data, phase)
            if from_ == pair.sender:
                base_reply(pair.made.context, text, bytes(32))
                return
            due = len(honest) - 16 if count else setup_length(pair.made.f, False)
            need(len(text) == due, f"{len(text)} bytes, {due} are due")
            if count == 0:
                reply_point(text[:32])
        except Refused as refusal:
            raise Refused(str(refusal), to, phase, refusal.culprits or [from_]) from None


    def check_offers(self, pair, count, data, honest):
        """The receiver's check of a changed message with offers, or of their digest."""
        offers, number, tile = pair.offered(count)
        due = offers.digest()
        if number < len(offers.messages):
            need(len(data) == len(honest), "offers of another length")
            found = offers.digest(number, data)
        else:
            found = self.open(pair.sender, pair.receiver, 1 + tile, data, ONLINE)
            need(len(found) == 16, f"{len(found)} bytes, 16 are due")
        blame = pair.receiver, ONLINE, [SERVER, pair.sender]
        need(found == due, "another hash of the offers than the digest", *blame)


def shade_case(case):
    run, held = run_of(case, Shade), links(case["messages"])
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
    yield "distances by sums", found, turned


def shade_refused(vectors, entry):
    yield from pair_refused(run_of(vectors["cases"][entry["case"]], Shade), vectors, entry)


def correlated_case(case):
    pi = Context(unhex(case["session"]), b"test", case["sender"],
                 case["receiver"]).permutation("vectors", 0)
    groups, sent, got = correlated(pi, case["width"], case["first"], number(unhex(case["delta"])),
                                   pieces(unhex(case["zeros"]), 16), case["bits"], case["choices"])
    modulus = 2**case["width"]
    yield "offers", b"".join(groups).hex(), case["offers"]
    yield "the sender's sums", [s % modulus for s in sent], case["sender_sums"]
    yield "the receiver's sums", [t % modulus for t in got], case["receiver_sums"]
    direct = [
        sum(c * (1 - 2 * x) for c, x in zip(case["choices"], lane)) for lane in zip(*case["bits"])
    ]
    left = [(t - s - d) % modulus for s, t, d in zip(sent, got, direct)]
    yield "what they make", left, [0] * case["lanes"]


CHECKS = {"correlated-transfer": (correlated_case, None), "shade": (shade_case, shade_refused)}
