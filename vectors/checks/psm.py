"""The distance backend psm: docs/spec/psm.md."""
import struct
from operator import mul

from .codes import apart, unpack_rows
from .messages import Reader, opened, sealed
from .pairs import packed, unpacked
from .primitives import SERVER, Refused, derive, ids, need, pieces, stream, unhex
from .reasons import blame, refused_by

ONLINE, TILE = 4, 512


class Psm:
    """A run. `pair(client)` is the secret that a client shares with the server."""

    def __init__(self, session, suite, bits, codes, seed, pair, min_clients=2):
        self.session, self.suite, self.bits, self.width = session, suite, bits, bits.bit_length()
        self.codes, self.seed, self.pair, self.min_clients = codes, seed, pair, min_clients
        self.tile_rows = max(1, (2**20 - 16) // -(-bits * self.width // 8))
        self.made = {}

    def words(self, purpose, count, *numbers):
        seed = derive(self.seed, self.session, purpose, ids(*numbers))
        return struct.unpack(f"<{count}H", stream(self.suite, seed, 2 * count))

    def code_mask(self, attempt, client):
        key = attempt, client
        if key not in self.made:
            words = self.words("code mask", len(self.codes[client]) * self.bits, *key)
            self.made[key] = pieces(words, self.bits)
        return self.made[key]

    def masked(self, attempt, client):
        masks = self.code_mask(attempt, client)
        return [[x + m for x, m in zip(row, mask)] for row, mask in zip(self.codes[client], masks)]

    def half(self, attempt, me, other):
        """The half of client `me` for all pairs of rows, by rows of the first client of the
        pair."""
        j, k = min(me, other), max(me, other)
        columns, sign = len(self.codes[k]), 1 if me == j else -1
        words = self.words("distance mask", len(self.codes[j]) * columns, attempt, j, k)
        mask = pieces(words, columns)
        left = self.codes[j] if me == j else self.code_mask(attempt, j)
        right = self.code_mask(attempt, k) if me == j else self.masked(attempt, k)
        ones = lambda a, i: sum(self.codes[j][a] if me == j else self.codes[k][i])
        number = lambda a, x, i, y: 2 * sum(map(mul, x, y)) + ones(a, i) + sign * mask[a][i]
        return [[number(a, x, i, y) for i, y in enumerate(right)] for a, x in enumerate(left)]

    def tiles(self, j, k):
        starts = lambda client: range(0, len(self.codes[client]), TILE)
        return [(a, i) for a in starts(j) for i in starts(k)]

    def texts(self, attempt, me, members):
        rows = [packed(row, self.width) for row in self.masked(attempt, me)]
        for part in pieces(rows, self.tile_rows) or [[]]:
            yield b"".join(part)
        for other in members:
            if other != me and self.codes[other] and self.codes[me]:
                half = self.half(attempt, me, other)
                for a, i in self.tiles(min(me, other), max(me, other)):
                    tile = [n for row in half[a:a + TILE] for n in row[i:i + TILE]]
                    yield packed(tile, self.width)

    def seal(self, me, count, text):
        return sealed(self.session, self.pair(me), me, SERVER, count, text)

    def to_server(self, me, attempts):
        """The payloads of all attempts. `attempts` lists the members of each."""
        texts = (text for attempt, members in enumerate(attempts) if me in members
                 for text in self.texts(attempt, me, members))
        return [self.seal(me, count, text) for count, text in enumerate(texts)]

    def distances(self, members):
        return [[apart(x, y) for x in self.codes[j] for y in self.codes[k]]
                for at, j in enumerate(members) for k in members[at + 1:]]

    def server(self, received, members):
        """The distances of each pair after one attempt, or who is to blame. Every message is one
        tile."""
        texts = {}
        for client, payloads in received.items():
            for count, payload in enumerate(payloads):
                try:
                    text = opened(self.session, self.pair(client), client, SERVER, count, payload)
                    texts.setdefault(client, []).append(self.read(client, members, count, text))
                except Refused as refusal:
                    raise Refused(str(refusal), SERVER, ONLINE, [client]) from None
        out = []
        for at, j in enumerate(members):
            for k in members[at + 1:]:
                u, v = (texts[a][1 + [c for c in members if c != a].index(b)]
                        for a, b in ((j, k), (k, j)))
                products = [sum(map(mul, x, y)) for x in texts[j][0] for y in texts[k][0]]
                h = [(a + b - 2 * p) % 2**self.width for a, b, p in zip(u, v, products)]
                need(max(h) <= self.bits, "a distance above L", SERVER, ONLINE, [j, k])
                out.append(h)
        return out

    def read(self, client, members, count, text):
        rows = len(self.codes[client])
        if count:
            other = [c for c in members if c != client][count - 1]
            return unpacked(text, self.width, rows * len(self.codes[other]))
        size = -(-self.bits * self.width // 8)
        need(len(text) == rows * size, f"{len(text)} bytes of numbers, {rows * size} are due")
        return [unpacked(row, self.width, self.bits) for row in pieces(text, size)]

    def check_set(self, me, data, before):
        try:
            reader = Reader(data)
            members = [reader.number(4) for _ in range(-(-len(data) // 4))]
            need(members == sorted(set(members)) and set(members) <= set(before),
                 "a set that does not shrink")
            need(me in members, "the receiver is not in the set")
            need(len(members) >= self.min_clients, "too few take part")
        except Refused as refusal:
            raise Refused(str(refusal), me, ONLINE, [SERVER]) from None


def run_of(case):
    clients = case["clients"]
    codes = [
        unpack_rows(unhex(client["codes"]), case["bits"], client["rows"]) for client in clients
    ]
    return Psm(unhex(case["session"]), case["suite"], case["bits"], codes, unhex(case["seed"]),
               lambda client: unhex(clients[client]["pair_secret"]))


def psm_case(case):
    """A client that is not in the last set has dropped out. It sent only the first of its
    messages."""
    run = run_of(case)
    attempts = [range(len(case["clients"]))] * case["attempt"] + [case["set"]]
    for me, client in enumerate(case["clients"]):
        held = client["messages"]
        made = [payload.hex() for payload in run.to_server(me, attempts)]
        yield f"messages of client {me}", held, made if me in case["set"] else made[:len(held)]
    distances = run.distances(case["set"])
    yield "distances", distances, case["distances"]
    if not case["attempt"]:
        received = {
            me: list(map(unhex, client["messages"])) for me, client in enumerate(case["clients"])
        }
        yield "distances by halves", run.server(received, case["set"]), distances


def psm_refused(vectors, entry):
    case = vectors["cases"][entry["case"]]
    run, changed, me = run_of(case), unhex(entry["payload"]), min(entry["from"], entry["to"])
    if entry["from"] == SERVER:
        honest, everybody = ids(*case["set"]), range(len(case["clients"]))
        check = lambda data: run.check_set(me, data, everybody)
    else:
        honest = unhex(case["clients"][me]["messages"][entry["number"]])

        def check(data):
            received = {
                client: list(map(unhex, c["messages"])) for client, c in enumerate(case["clients"])
            }
            received[me][entry["number"]] = data
            run.server(received, case["set"])
    yield "one end is the server", max(entry["from"], entry["to"]), SERVER
    yield "one payload for another", changed != honest, True
    yield from blame(refused_by(entry, check, (honest,), (changed,)), entry)


CHECKS = {"psm": (psm_case, psm_refused)}
