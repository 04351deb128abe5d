"""Whole secure sums: every message of both sides, and the refusals. See docs/spec/sums.md."""
import hashlib
import struct

from . import curve
from .messages import (Reader, bits, check_roster, distinct, flags, hello, hello_alone, opened,
                       roster, sealed, sign)
from .primitives import (SERVER, SUITES, Refused, agree, derive, extract, ids, need, number, pieces,
                         public, stream, unhex)
from .reasons import blame, refused_by
from .sharing import combine, degree, graph, split

KEYS, SHARES, MASKED, UNMASKING = 7, 8, 9, 10


class Sum:
    """A sum of the clients `numbers`, in default 0, 1, … `seeds`, `rows` (first, count) and `words`
    are theirs, by place. `server` holds the words that the server adds to the rows before it hands
    them out. The checks of the parties are those of a sum of clients 0, 1, …"""

    def __init__(self, session, round_, suite, size, width, shape, seeds, rows, words, min_clients,
                 everybody=True, malicious=False, wiring=None, identities=None, sharing=None,
                 contributors=None, server=None, numbers=None, group=None):
        self.session, self.round, self.suite = session, round_, suite
        self.size, self.width = size, width
        self.all_rows, self.shared = shape
        self.seeds, self.rows, self.words = seeds, rows, words
        self.min_clients, self.everybody, self.malicious = min_clients, everybody, malicious
        self.server = server or [0] * (self.all_rows * width)
        self.wiring, self.identities = wiring, identities or [None] * len(seeds)
        self.places = range(len(seeds))
        self.numbers = numbers or list(self.places)
        self.neighbours, self.threshold = wiring or degree(len(seeds), malicious)[1:3]
        self.group = group
        self.sharing = self.whole(sharing or [True] * len(seeds))
        self.contributors = self.whole(contributors or self.sharing)
        names = ("sealing key", "mask key", "self mask seed", "polynomial")
        self.secrets = [{name: derive(seed, session, name, ids(client, round_)) for name in names}
                        for client, seed in zip(self.numbers, seeds, strict=True)]
        self.hellos = [self.hello(place) for place in self.places]
        self.roster = roster(self.hellos, self.numbers)
        self.digest = hashlib.sha256(b"undertone/v1/roster" + session + ids(round_) +
                                     self.roster).digest()
        self.graph = graph(len(seeds), self.neighbours, extract(session, "graph", self.digest))
        self.transcript = hashlib.sha256(self.digest + bits(self.sharing)).digest()
        self.deals, self.blocks, end = {}, [], 0
        for (_, count), shares in zip(rows, self.sharing):
            count = count * width if shares else 0
            self.blocks.append(range(end, end + count))
            end += count
        self.length = end + self.shared

    def rules(self):
        packed = self.session + ids(self.round)
        packed += struct.pack("<QQQ", self.all_rows, self.width, self.shared)
        packed += bytes([self.everybody]) + struct.pack("<QB", self.min_clients, self.malicious)
        if self.wiring:
            packed += b"\1" + struct.pack("<QQ", *self.wiring)
        else:
            packed += b"\0" + struct.pack("<ddII", 0.1, 0.1, 40, 20)
        packed += bytes([SUITES.index(self.suite), self.size])
        if self.group:
            packed += struct.pack("<QQ", len(self.seeds), self.group)
        return hashlib.sha256(packed).digest()[:16]

    def whole(self, there):
        """A set of places without those whose group is not whole in it. Everybody is invited."""
        if not self.group:
            return there
        clients = len(there)
        count = max(clients // self.group, 1)
        ends = [number * clients // count for number in range(count + 1)]
        return [all(there[low:high]) for low, high in zip(ends, ends[1:]) for _ in range(low, high)]

    def hello(self, place):
        keys = public(self.secrets[place]["sealing key"]) + public(self.secrets[place]["mask key"])
        advertisement = self.rules() + struct.pack("<QQ", *self.rows[place])
        return hello(self.session, "sign sum keys", self.numbers[place], keys, advertisement,
                     self.identities[place])

    def pair(self, a, b, name, purpose):
        return agree(self.session, purpose, self.secrets[a][name], public(self.secrets[b][name]))

    def holders(self, dealer):
        return sorted([*self.graph[dealer], dealer])

    def dealt(self, dealer):
        if dealer not in self.deals:
            secrets, holders = self.secrets[dealer], self.holders(dealer)
            both = secrets["self mask seed"] + secrets["mask key"]
            shares = split(both, self.threshold, len(holders), secrets["polynomial"])
            self.deals[dealer] = dict(zip(holders, shares))
        return self.deals[dealer]

    def seal_key(self, a, b):
        return derive(self.pair(a, b, "sealing key", "sum pair"), self.session, "sum seal",
                      self.digest)

    def sealed(self, dealer, holder):
        key, share = self.seal_key(dealer, holder), self.dealt(dealer)[holder]
        return sealed(self.session, key, self.numbers[dealer], self.numbers[holder], 0, share)

    def commitment(self, dealer, seed):
        context = ids(self.numbers[dealer], self.round)
        return derive(seed, self.session, "self mask commitment", context)

    def shares(self, place):
        sent = b"".join(self.sealed(place, other) for other in self.graph[place])
        return sent + self.commitment(place, self.secrets[place]["self mask seed"])

    def sharers(self, place):
        """The neighbours that sent shares."""
        return [other for other in self.graph[place] if self.sharing[other]]

    def shares_received(self, place):
        return bits(self.sharing) + b"".join(
            self.sealed(other, place) for other in self.sharers(place))

    def stream(self, secret, purpose, low, high, count):
        context = self.transcript + ids(self.numbers[low], self.numbers[high], self.round)
        context += bytes([SUITES.index(self.suite), self.size])
        seed = derive(secret, self.session, purpose, context + struct.pack("<Q", self.length))
        return map(number, pieces(stream(self.suite, seed, count * self.size), self.size))

    def joint(self, place):
        return self.joint_rows(self.words[place]) + self.words[place][self.all_rows * self.width:]

    def joint_rows(self, words):
        out = []
        for (first, count), shares in zip(self.rows, self.sharing):
            if shares:
                out += words[first * self.width:(first + count) * self.width]
        return out

    def row_mask(self, place, other):
        """The masks by position among the joint words, with their signs."""
        low, high = min(place, other), max(place, other)
        where = [*self.blocks[low], *self.blocks[high]]
        mask = self.stream(self.pair(place, other, "sealing key", "sum pair"), "row mask", low,
                           high, len(where))
        return {at: word if place == low else -word for at, word in zip(where, mask)}

    def masked(self, place):
        joint = self.joint(place)
        outside = [at for at in range(self.length) if at not in self.blocks[place]]
        own = self.secrets[place]["self mask seed"]
        for at, word in zip(outside, self.stream(own, "self mask", place, place, len(outside))):
            joint[at] += word
        for other in self.sharers(place):
            low, high = min(place, other), max(place, other)
            where = [at for at in outside if at not in self.blocks[other]]
            secret = self.pair(place, other, "mask key", "mask pair")
            for at, word in zip(where, self.stream(secret, "edge mask", low, high, len(where))):
                joint[at] += word if place == low else -word
            for at, word in self.row_mask(place, other).items():
                if at in self.blocks[other]:
                    joint[at] += word
        return self.packed(joint[at] for at in outside)

    def packed(self, words):
        modulus = 1 << 8 * self.size
        return b"".join((word % modulus).to_bytes(self.size, "little") for word in words)

    def signature(self, place):
        body = self.transcript + bits(self.contributors)
        return sign(self.identities[place], self.session, "sign contributors", body)

    def signatures_received(self, place):
        signed = [there for there in self.places if self.contributors[there]]
        return bits(self.contributors) + b"".join(map(self.signature, signed))

    def answer(self, place):
        out = self.dealt(place)[place][:32]
        for other in self.sharers(place):
            share = self.dealt(other)[place]
            out += b"\0" + share[:32] if self.contributors[other] else b"\1" + share[32:]
        return out

    def sum(self):
        """The sum of the contributors' joint words in the clear, with the words that the server
        adds."""
        rows = [self.joint(place) for place in self.places if self.contributors[place]]
        rows.append(self.joint_rows(self.server) + [0] * self.shared)
        return [sum(column) for column in zip(*rows)]

    def own(self, place):
        return [self.sum()[at] for at in self.blocks[place]]

    def total(self):
        return self.sum()[self.length - self.shared:]

    def result(self, place):
        """The sum of a client's rows, less what it adds itself; then the shared words. None if
        there are no such words."""
        if not self.blocks[place] and not (self.everybody and self.shared):
            return None
        total, mine = self.sum(), self.joint(place)
        rows = {at: total[at] - mine[at] for at in self.blocks[place]}
        for other in self.sharers(place):
            if self.contributors[other]:
                for at, word in self.row_mask(place, other).items():
                    if at in rows:
                        rows[at] -= word
        return self.packed([*rows.values(), *(self.total() if self.everybody else [])])

    def to_server(self, place):
        """The phase and the payload of a client's messages, with one tile of words."""
        out = [(KEYS, self.hellos[place]), (SHARES, self.shares(place)),
               (MASKED, self.masked(place))]
        if self.malicious:
            out.append((UNMASKING, self.signature(place)))
        return out + [(UNMASKING, self.answer(place))]

    def contributors_received(self, place):
        """Nothing if the client is left out, because its group is not whole."""
        return b"" if self.group and not self.contributors[place] else bits(self.contributors)

    def to_client(self, place):
        out = [(KEYS, self.roster), (SHARES, self.shares_received(place)),
               (UNMASKING, self.contributors_received(place))]
        if self.malicious:
            out.append((UNMASKING, self.signatures_received(place)))
        result = self.result(place)
        return out if result is None else out + [(UNMASKING, result)]

    # The checks of the parties.

    def check_hello(self, place, data):
        """The server's checks, then the clients' checks, in order, of the roster that results."""
        try:
            hellos = [data if other == place else mine for other, mine in enumerate(self.hellos)]
            entry = hello_alone(data, 2)
            need(entry[1] == self.rules() + struct.pack("<QQ", *self.rows[place]),
                 "other rules or rows")
            distinct(hello_alone(one, 2)[0] for one in hellos)
        except Refused as refusal:
            raise Refused(str(refusal), SERVER, KEYS, [place]) from None
        for other in self.places:
            self.check_roster(other, roster(hellos))

    def check_roster(self, me, data):
        pinned = {place: curve.ed_public(key) for place, key in enumerate(self.identities) if key}
        try:
            entries = check_roster(data, 2, me, self.hellos[me], self.session, "sign sum keys",
                                   pinned)
            need(all(entry[1][:16] == self.rules() for entry in entries.values()), "other rules")
            need(len(entries) >= self.min_clients, "too few clients")
        except Refused as refusal:
            raise Refused(str(refusal), me, KEYS, [SERVER]) from None

    def check_shares(self, place, data):
        others = self.graph[place]
        need(len(data) == 80 * len(others) + 32, "shares of another length", SERVER, SHARES,
             [place])
        for other, share in zip(others, pieces(data, 80)):
            self.check_share(other, place, share)

    def check_share(self, me, dealer, share):
        try:
            opened(self.session, self.seal_key(dealer, me), dealer, me, 0, share)
        except Refused as refusal:
            raise Refused(str(refusal), me, SHARES, [dealer]) from None

    def check_set(self, me, data, phase, within):
        """A client's check of the set of clients that shared, or that contributed."""
        try:
            there = flags(data, len(self.places))
            need(there[me], "the receiver is not in the set")
            need(all(a <= b for a, b in zip(there, within)), "a set of others than before")
        except Refused as refusal:
            raise Refused(str(refusal), me, phase, [SERVER]) from None
        need(sum(there) >= self.min_clients, "too few clients", me, phase)
        holders = sum(there[other] for other in self.holders(me))
        need(holders >= self.threshold, "too few holders", me, phase)
        return there

    def check_shares_received(self, me, data):
        there = self.check_set(me, data[:len(bits(self.sharing))], SHARES,
                               [True] * len(self.places))
        dealers = [other for other in self.graph[me] if there[other]]
        shares = pieces(data[len(bits(there)):], 80)
        need([len(share) for share in shares] == [80] * len(dealers), "shares of another length",
             me, SHARES, [SERVER])
        for dealer, share in zip(dealers, shares):
            self.check_share(me, dealer, share)

    def check_contributors(self, me, data):
        there = self.check_set(me, data, UNMASKING, self.sharing)
        need(self.whole(there) == there, "groups that are not whole", me, UNMASKING, [SERVER])

    def check_masked(self, place, data):
        due = (self.length - len(self.blocks[place])) * self.size
        need(len(data) == due, f"{len(data)} bytes of words, {due} are due", SERVER, MASKED,
             [place])

    def check_answer(self, place, data):
        """Rebuilds each secret from the first shares that suffice. One answer is changed."""
        answers = {other: self.answer(other) for other in self.places if self.contributors[other]}
        answers |= {place: data}
        held = {}
        for holder, answer in answers.items():
            try:
                reader = Reader(answer)
                held.setdefault(holder, {})[holder] = reader.take(32)
                for dealer in self.sharers(holder):
                    kind = reader.below(1, 2)
                    need(kind == (not self.contributors[dealer]), "a share of the wrong kind")
                    held.setdefault(dealer, {})[holder] = reader.take(32)
                reader.end()
            except Refused as refusal:
                raise Refused(str(refusal), SERVER, UNMASKING, [holder]) from None
        for dealer, shares in sorted(held.items()):
            points = {
                self.holders(dealer).index(holder) + 1: share
                for holder, share in sorted(shares.items())
            }
            if self.rebuilt(dealer, points):
                continue
            spare = len(points) > self.threshold and any(
                self.rebuilt(dealer, {p: s for p, s in points.items() if p != left})
                for left in points)
            need(spare, "shares do not give back the secret", SERVER, UNMASKING, [dealer])

    def rebuilt(self, dealer, points):
        secret = combine(dict(list(points.items())[:self.threshold]))
        secrets = self.secrets[dealer]
        if self.contributors[dealer]:
            due = self.commitment(dealer, secrets["self mask seed"])
            return self.commitment(dealer, secret) == due
        return public(secret) == public(secrets["mask key"])

    def check_result(self, me, data):
        due = (len(self.blocks[me]) + (self.shared if self.everybody else 0)) * self.size
        need(len(data) == due, f"{len(data)} bytes of words, {due} are due", me, UNMASKING,
             [SERVER])

    def check_message(self, from_, to, number_, data):
        """Checks the message of that number between a client and the server. There are no
        signatures of contributors."""
        if to == SERVER:
            checks = [self.check_hello, self.check_shares, self.check_masked, self.check_answer]
            checks[number_](from_, data)
        else:
            checks = [
                self.check_roster, self.check_shares_received, self.check_contributors,
                self.check_result
            ]
            checks[number_](to, data)


def of_case(case):
    clients, size = case["clients"], case["word_bits"] // 8
    return Sum(unhex(case["session"]), case["round"], case["suite"], size, case["width"],
               (case["rows"], case["shared"]), [unhex(client["seed"]) for client in clients],
               [(client["first_row"], client["rows"]) for client in clients],
               [list(map(number, pieces(unhex(client["words"]), size))) for client in clients],
               case["min_clients"], case["everybody_learns_shared"], False,
               (case["neighbours"], case["threshold"]), None,
               [client.get("shares") is not None for client in clients],
               [client.get("masked_words") is not None for client in clients],
               group=case.get("group"))


def sum_case(case):
    run = of_case(case)
    yield "bits of a word", case["word_bits"] in (32, 64), True
    yield "everybody is on the roster", all(client.get("hello") for client in case["clients"]), True
    yield "roster", run.roster.hex(), case["roster"]
    made = {"hello": run.hello, "shares": run.shares, "shares_received": run.shares_received,
            "masked_words": run.masked, "contributors_received": run.contributors_received,
            "answer": run.answer, "result": run.result}
    for place, client in enumerate(case["clients"]):
        for field, make in made.items():
            due = make(place) if client.get(field) is not None or field == "result" else None
            if field == "result" and client.get("answer") is None:
                due = None
            yield f"client {place}, {field}", None if due is None else due.hex(), client.get(field)
    yield "total", run.packed(run.total()).hex(), case["total"]
    contributors = [place for place in run.places if run.contributors[place]]
    yield "contributors", contributors, case["contributors"]


def sum_refused(vectors, entry):
    case = vectors["cases"][entry["case"]]
    run, link = of_case(case), (entry["from"], entry["to"], entry["number"])
    place = min(link[:2])
    fields = ("hello", "shares", "masked_words", "answer") if link[1] == SERVER else (
        None, "shares_received", "contributors_received", "result")
    field = fields[entry["number"]]
    held = case["clients"][place][field] if field else case["roster"]
    yield "one end is the server", max(link[:2]), SERVER
    yield "one payload for another", entry["payload"] != held, True
    refusal = refused_by(entry, run.check_message, (*link, unhex(held)),
                         (*link, unhex(entry["payload"])))
    yield from blame(refusal, entry)


CHECKS = {"masked-sum": (sum_case, None), "row-sum": (sum_case, sum_refused)}
