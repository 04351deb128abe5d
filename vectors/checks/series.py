"""Sums in long series: every message and every sum. See docs/spec/series.md."""
import hashlib
import struct

from .labels import depth_differences, frame_differences
from .messages import Reader
from .primitives import SERVER, SUITES, Refused, derive, ids, need, number, pieces, stream, unhex
from .reasons import blame, refused_by

ALL, TILE, SUMS = object(), 2**20, 99


class Block:
    """Words with one owner: the server, a client or ALL clients."""

    def __init__(self, owner, words, contributors):
        self.owner, self.words, self.contributors = owner, words, contributors

    def has(self, client):
        return client == self.owner or client in self.contributors

    def is_sent_by(self, client):
        return client != self.owner and client in self.contributors


class Series:
    """`pair(a, b)` is the pair secret of two clients."""

    def __init__(self, session, name, suite, members, pair, group, channels=None):
        """`channels` is the session of the pair channels, if it is another."""
        self.session, self.suite, self.members = session, suite, members
        name = name.encode()
        self.digest = hashlib.sha256(b"undertone/v1/series" + session + ids(len(name)) + name +
                                     ids(*members)).digest()
        exporter = lambda a, b: derive(pair(a, b), channels or session, "exporter")
        self.pair_secret = lambda a, b: derive(exporter(a, b), session, "series")
        self.pairs = {(a, b): self.pair_secret(a, b) for a in members for b in members if a < b}
        self.group = derive(group, session, "series")

    def stream(self, secret, purpose, at, size, count):
        context = self.digest + struct.pack("<IB", *at) + bytes([SUITES.index(self.suite), size])
        key = derive(secret, self.session, purpose, context)
        return [number(word) for word in pieces(stream(self.suite, key, count * size), size)]


class Sum:
    """A sum of a series. `words` has those of each client for the whole layout."""

    def __init__(self, series, at, size, blocks, words):
        self.series, self.at, self.size, self.blocks = series, at, size, blocks
        self.modulus, self.count = 2**(8 * size), sum(block.words for block in blocks)
        self.places, end = [], 0
        for block in blocks:
            self.places.append(range(end, end + block.words))
            end += block.words
        self.plain = [[sum(words[client][i] for client in block.contributors) % self.modulus
                       for i in places] for block, places in zip(blocks, self.places)]
        self.masked = self.mask(words)
        self.totals = [[sum(self.masked[client][i] for client in series.members
                            if block.is_sent_by(client)) % self.modulus for i in places]
                       for block, places in zip(blocks, self.places)]

    def mask(self, words):
        series = self.series
        out = {client: [0] * self.count for client in series.members}
        for block, places in zip(self.blocks, self.places):
            for client in block.contributors:
                for i in places:
                    out[client][i] = words[client][i]
        for (a, b), secret in series.pairs.items():
            both = [i for block, places in zip(self.blocks, self.places)
                    if block.has(a) and block.has(b) for i in places]
            masks = both and series.stream(secret, "series mask", self.at, self.size, self.count)
            for i in both:
                out[a][i] += masks[i]
                out[b][i] -= masks[i]
        self.pads = series.stream(series.group, "series pad", self.at, self.size, self.count)
        for block, places in zip(self.blocks, self.places):
            if block.owner is ALL:
                for i in places:
                    out[block.contributors[0]][i] += self.pads[i]
        return out

    def tiles(self, words):
        data = b"".join((word % self.modulus).to_bytes(self.size, "little") for word in words)
        return [struct.pack("<IB", *self.at) + part for part in pieces(data, TILE)]

    def from_client(self, client):
        return self.tiles(self.masked[client][i]
                          for block, places in zip(self.blocks, self.places)
                          if block.is_sent_by(client) for i in places)

    def total(self, owner):
        return [word for block, total in zip(self.blocks, self.totals)
                if block.owner == owner for word in total]

    def to_client(self, client):
        return self.tiles(self.total(client)) + self.tiles(self.total(ALL))

    def opened(self, client):
        """The sums that a client learns: its own blocks, then those of all clients."""
        at = lambda owner: [i for block, places in zip(self.blocks, self.places)
                            if block.owner == owner for i in places]
        own = [word + self.masked[client][i] for i, word in zip(at(client), self.total(client))]
        all_ = [word - self.pads[i] for i, word in zip(at(ALL), self.total(ALL))]
        return [word % self.modulus for word in own + all_]

    def clear(self, *owners):
        """The sums of the owners' blocks, owner after owner, from the words without masks."""
        return [word for owner in owners for block, words in zip(self.blocks, self.plain)
                if block.owner == owner for word in words]

    def differences(self):
        """Without masks the sums are the same."""
        yield f"sums of the server, {self.at}", self.total(SERVER), self.clear(SERVER)
        for client in self.series.members:
            made = self.opened(client)
            yield f"sums of {client}, {self.at}", made, self.clear(client, ALL)


def check_tile(honest, data):
    """A tile is of the sum that is due, and as long."""
    reader = Reader(data)
    at = reader.take(4) + reader.take(1)
    need(at == honest[:5], "a tile of another number")
    left, due = len(reader.data), len(honest) - 5
    need(left == due, f"{left} bytes of words, {due} are due")


# Checks.

def block_of(held):
    owner = {"server": SERVER, "clients": ALL, "client": held["client"]}[held["owner"]]
    return Block(owner, held["words"], held["contributors"])


def sums_of(case):
    secrets = {tuple(pair["clients"]): unhex(pair["secret"]) for pair in case["pairs"]}
    members = case["members"]
    series = Series(unhex(case["session"]), case["name"], case["suite"], members,
                    lambda a, b: secrets[a, b], unhex(case["group_seed"]))
    for held in case["sums"]:
        size = held["word_bytes"]
        words = [list(map(number, pieces(unhex(text), size))) for text in held["words"]]
        yield held, Sum(series, (held["step"], held["kind"]), size,
                        list(map(block_of, held["blocks"])), dict(zip(members, words, strict=True)))


def links(case):
    """All messages by link, as phase, kind and payload."""
    out = {}
    for _, made in sums_of(case):
        for client in case["members"]:
            for link, data in (((client, SERVER), made.from_client(client)),
                               ((SERVER, client), made.to_client(client))):
                out.setdefault(link, []).extend((SUMS, "words", tile) for tile in data)
    return out


def series_case(case):
    last = (-1, 0)
    for held, made in sums_of(case):
        yield "numbers that rise", made.at > last, True
        last = made.at
        joined = lambda words: b"".join(word.to_bytes(made.size, "little") for word in words).hex()
        yield from made.differences()
        yield f"server, {made.at}", joined(made.total(SERVER)), held["server"]
        for client, learned in zip(case["members"], held["learned"], strict=True):
            yield f"client {client}, {made.at}", joined(made.opened(client)), learned
    yield from frame_differences(case["frames"], links(case))
    yield from depth_differences(case["frames"])


def series_refused(vectors, entry):
    link = entry["from"], entry["to"]
    phase, _, honest = links(vectors["cases"][entry["case"]])[link][entry["number"]]

    def check(data):
        try:
            check_tile(honest, data)
        except Refused as refusal:
            raise Refused(str(refusal), link[1], phase, [link[0]]) from None

    changed = unhex(entry["payload"])
    yield "one payload for another", changed != honest, True
    yield from blame(refused_by(entry, check, (honest,), (changed,)), entry)


CHECKS = {"series": (series_case, series_refused)}
