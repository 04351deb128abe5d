"""Whole training jobs: census, rounds and end, with what updates are told, and the refusals. See
docs/spec/training.md."""
import hashlib
import itertools
import math
import struct

from .jobs import context, digest, fields_of
from .labels import PARAMETERS, SETUP, Setup, depth_differences, frame_differences
from .labels_refused import SetupChecks
from .messages import Reader
from .primitives import (SERVER, Refused, Stream, derive, hexed, ids, need, number, pieces,
                         round_away, stream, unhex)
from .reasons import blame, refused_by
from .sharing import encode, fraction_bits, signed
from .sums import UNMASKING, Sum

MODEL, UPDATE = 17, 18
CENSUS, ROUND, OVER = range(3)
MOST_CLIENTS, TILE = 2**20, 2**18


def single(value):
    """The nearest single."""
    return struct.unpack("<f", struct.pack("<f", value))[0]


def singles(data):
    return list(struct.unpack(f"<{len(data) // 4}f", data))


def packed(values):
    return struct.pack(f"<{len(values)}f", *values)


def shuffled(entries, words):
    out = list(entries)
    for i in range(len(out) - 1, 0, -1):
        other = number(words.read(8)) % (i + 1)
        out[i], out[other] = out[other], out[i]
    return out


def batches(labelled, pseudo, sizes, epochs, seed):
    """The rows of each batch, those with labels first. Rows are drawn from the end of an order."""
    words, order = Stream(seed), []
    for _ in range(epochs):
        epoch = shuffled(pseudo or labelled, words)[::-1]
        for part in pieces(epoch, sizes[1] if pseudo else sizes[0]):
            batch = []
            for _ in range(sizes[0] if pseudo else 0):
                order = order or shuffled(labelled, words)
                batch.append(order.pop())
            yield batch + part


class Job:
    """The parameters, and the data of the clients."""

    def __init__(self, case):
        job, self.clients = case["job"], case["clients"]
        fields = fields_of(job)
        for name in ("label_rounds", "rounds", "sampled", "groups", "epochs", "features",
                     "classes", "parameters", "weight_decay", "consistency", "clip"):
            setattr(self, name, fields[name])
        self.source, self.rate = fields["labels_from"], fields["learning_rate"]
        self.propagation = {name: fields[name] for name in PARAMETERS} | {
            "alpha": hexed(fields["alpha"]), "classes": self.classes, "class_names": None}
        self.min_clients = self.propagation["min_clients"]
        self.suite, self.malicious = (self.propagation[name]
                                      for name in ("suite", "malicious_server"))
        self.last = self.label_rounds + self.rounds
        self.counts_once = (self.source == "xclp" and not self.groups and
                            self.propagation["variant"] == "balanced")
        rows = [list(enumerate(client["labels"])) for client in self.clients]
        self.labelled = [[row for row, label in own if label is not None] for own in rows]
        self.unlabelled = [[row for row, label in own if label is None] for own in rows]
        self.identities = [unhex(client["identity"] or "") or None for client in self.clients]
        self.digest = digest("train", fields)

    def source_in(self, round_):
        return "labels" if round_ <= self.label_rounds else self.source

    def needed(self, members):
        """Fewest clients of a round, and of its sum."""
        return len(members) if self.groups else self.min_clients

    def holders(self, clients):
        """Those of the clients that have labelled rows."""
        return [client for client in clients if self.labelled[client]]

    def sizes(self, client):
        """Labelled rows of a batch, and rows with pseudo-labels."""
        own = min(50, len(self.labelled[client]))
        counts = [len(labelled) for labelled in self.labelled if labelled]
        twice = 2 * round_away(sum(counts) / max(1, len(counts)))
        return own, own or min(max(twice, 1), 100)

    def rate_in(self, round_, labelled):
        """Computed in doubles from singles."""
        first = single(0.3 if labelled == 50 else 0.1) if self.rate is None else self.rate
        in_first = round_ <= self.label_rounds
        done = round_ - 1 - (0 if in_first else self.label_rounds)
        of = self.label_rounds if in_first else self.rounds
        return single(first * (1 + math.cos(math.pi * (done / (4 * of / 3)))) / 2)

    def consistency_in(self, round_):
        """Computed in singles."""
        if round_ <= self.label_rounds:
            return 0.0
        rest = single(1 - single(min(5, round_ - self.label_rounds) / 5))
        power = single(single(-5 * rest) * rest)
        return single(self.consistency * single(math.exp(power)))

    def sum(self, session, round_, seeds, words, min_clients, everybody, members):
        return Sum(session, round_, self.suite, 4, 0, (0, len(words[0])), seeds,
                   [(0, 0)] * len(members), words, min_clients, everybody, self.malicious, None,
                   [self.identities[client] for client in members], numbers=members)

    def are_whole(self, members, groups):
        """TRAIN-11."""
        if not groups:
            return set(members) <= set(range(len(self.clients)))
        whole = [group for group in groups if set(group) <= set(members)]
        return bool(whole) and sorted(sum(whole, [])) == members

    def can_be_drawn(self, members, groups):
        """Whether S can draw these clients if all are present."""
        everybody = range(len(self.clients))
        if not self.groups:
            holders = self.holders(everybody)
            share = min(-(-self.sampled * len(holders) // len(everybody)), len(holders))
            rest = min(self.sampled - share, len(everybody) - len(holders))
            return (len(self.holders(members)), len(members)) == (share, share + rest) and len(
                members) >= self.min_clients
        able = [group for group in groups if self.holders(group)]
        own = [group for group in able if set(group) <= set(members)]
        others = [group for group in able if group not in own]

        def is_nearer(before, group):
            return 2 * max(0, sum(map(len, before)) + len(group) - self.sampled) < len(group)

        def is_drawn(order):
            taken = all(is_nearer(order[:at], order[at]) for at in range(1, len(order)))
            return taken and (not others or not all(is_nearer(order, group) for group in others))
        return any(is_drawn(list(order)) for order in itertools.permutations(own))


class Session:
    """What all sessions have: the opening. `begun` is the number of the last round begun."""

    def __init__(self, job, held, kind, census, begun):
        self.job, self.kind, self.begun, self.members = job, kind, begun, held["members"]
        self.session, self.census = unhex(held["session"]), census
        self.seeds = list(map(unhex, held["seeds"]))
        self.opening = bytes([kind]) + (census.session if census else bytes(32)) + ids(
            begun, len(self.members), *self.members)

    def links(self):
        """All messages by link, as phase, kind and payload."""
        out = {}
        for place, client in enumerate(self.members):
            to, back = self.messages(place)
            out[SERVER, client] = [(MODEL, "opening", self.opening), *back]
            if to:
                out[client, SERVER] = to
        return out


class Census(Session):
    def __init__(self, job, held):
        super().__init__(job, held, CENSUS, None, 0)
        self.setup = CensusSetup(job, held)
        self.groups, self.counts, self.sum = self.dealt(), [], None
        if job.counts_once:
            words = [[(count + pad) % 2**32 for count, pad in zip(self.counted(place), pads)]
                     for place, pads in enumerate(map(self.pads, self.members))]
            seeds = [derive(seed, self.session, "census sum", ids(client))
                     for client, seed in zip(self.members, self.seeds)]
            self.sum = job.sum(self.session, 0, seeds, words, len(self.members), True,
                               self.members)
            pads = zip(*map(self.pads, self.members))
            self.counts = [(word - sum(own)) % 2**32
                           for word, own in zip(self.sum.total(), pads, strict=True)]

    def counted(self, client):
        labels = self.job.clients[client]["labels"]
        return [labels.count(class_) for class_ in range(self.job.classes)]

    def pads(self, client):
        seed = derive(self.setup.group, self.session, "training counts", ids(client))
        return [number(eight[:4])
                for eight in pieces(stream("chacha20", seed, 8 * self.job.classes), 8)]

    def dealt(self):
        if not self.job.groups:
            return []
        words = Stream(derive(self.setup.group, self.session, "training groups"))
        holders = self.job.holders(self.members)
        others = [client for client in self.members if client not in holders]
        order = shuffled(holders, words) + shuffled(others, words)
        count = max(1, len(order) // self.job.groups)
        return sorted(sorted(order[first::count]) for first in range(count))

    def packed_groups(self):
        return ids(len(self.groups)) + b"".join(ids(len(group), *group) for group in self.groups)

    def messages(self, client):
        setup, sum_ = self.setup, self.sum
        to = [(SETUP, "hello", setup.hellos[client]),
              (SETUP, "contributions", setup.contributions_of(client))]
        back = [(SETUP, "roster", setup.roster()),
                (SETUP, "contributions", setup.admission(client))]
        if sum_:
            to += [(phase, "sum", data) for phase, data in sum_.to_server(client)]
            back += [(phase, "sum", data) for phase, data in sum_.to_client(client)]
        return to + [(MODEL, "groups", self.packed_groups())], back

    def kept(self):
        """The fields with which the state begins."""
        out = self.session + ids(len(self.members))
        for client in self.members:
            out += ids(client, len(self.job.clients[client]["labels"]),
                       len(self.job.labelled[client]))
        groups = self.packed_groups()
        return out + ids(len(groups)) + groups


class CensusSetup(Setup):
    def __init__(self, job, held):
        session, self.job = unhex(held["session"]), job
        secret = lambda seed, *numbers: derive(unhex(seed), session, "census", ids(*numbers)).hex()
        clients = [{"seed": secret(seed, client), "identity": job.clients[client]["identity"]}
                   for client, seed in zip(held["members"], held["seeds"], strict=True)]
        case = {"parameters": job.propagation, "session": held["session"], "clients": clients,
                "server_seed": secret(held["server_seed"])}
        super().__init__(case, [len(client["labels"]) for client in job.clients], True)

    def tie(self, place):
        return self.seeds[place]

    def advertisement(self, place):
        return (ids(self.sizes[place], len(self.job.labelled[place])) + self.job.digest +
                self.names_digest())


def model_tiles(theta):
    return [(MODEL, "model", packed(tile)) for tile in pieces(theta, TILE)]


class Round(Session):
    def __init__(self, job, held, census, begun, theta):
        super().__init__(job, held, ROUND, census, begun)
        self.theta, self.source = theta, job.source_in(begun)
        if self.source not in ("labels", "network"):
            raise ValueError(f"rounds with source {self.source} are not checked")
        model = hashlib.sha256(b"undertone/v1/model" + packed(theta)).digest()
        self.context = context(self.session, job.digest, census.session + ids(begun) + model +
                               ids(*self.members))
        self.fraction = fraction_bits(32, len(self.members), job.clip)
        seeds = [self.derive(place, "sum") for place in range(len(self.members))]
        self.sum = job.sum(self.context, 1, seeds, list(map(self.words, self.members)),
                           job.needed(self.members), False, self.members)

    def derive(self, place, purpose):
        return derive(self.seeds[place], self.context, purpose, ids(self.members[place]))

    def pseudo(self, client):
        """Rows with pseudo-labels. Predictions are certain, so their weight is 1."""
        return self.job.unlabelled[client] if self.source == "network" else []

    def words(self, client):
        clip = self.job.clip
        change = [0.0] * self.job.parameters
        if self.job.labelled[client] or self.pseudo(client):
            adds = singles(unhex(self.job.clients[client]["change"]))
            change = [single(single(before + by) - before)
                      for before, by in zip(self.theta, adds, strict=True)]
        return [encode(max(-clip, min(clip, by)), clip, self.fraction, 32) for by in change]

    def updates(self):
        for place, client in enumerate(self.members):
            labelled, pseudo = self.job.labelled[client], self.pseudo(client)
            if labelled or pseudo:
                sizes = self.job.sizes(client)
                made = batches(labelled, pseudo, sizes, self.job.epochs,
                               self.derive(place, "update"))
                yield {"client": client, "batches": list(made),
                       "learning_rate": hexed(self.job.rate_in(self.begun, sizes[0])),
                       "consistency": hexed(self.job.consistency_in(self.begun))}

    def after(self):
        """The new model."""
        count = len(self.members)
        if self.source in ("labels", "local"):
            count = max(1, len(self.job.holders(self.members)))
        total = [math.ldexp(signed(word % 2**32, 32), -self.fraction) for word in self.sum.total()]
        return [single(before + by / count) for before, by in zip(self.theta, total, strict=True)]

    def messages(self, place):
        to = [(UPDATE, "trained", b"")]
        to += [(phase, "sum", data) for phase, data in self.sum.to_server(place)]
        back = model_tiles(self.theta)
        return to, back + [(phase, "sum", data) for phase, data in self.sum.to_client(place)]


class Over(Session):
    def __init__(self, job, held, census, begun, theta):
        super().__init__(job, held, OVER, census, begun)
        self.theta = theta

    def messages(self, place):
        return [], model_tiles(self.theta)


class Training:
    """A whole job: its sessions, and the model after each of them."""

    def __init__(self, case):
        self.job, theta = Job(case), singles(unhex(case["model"]))
        census, *others = case["sessions"]
        self.census = Census(self.job, census)
        self.sessions, self.models, self.rounds = [self.census], [theta], []
        for held in others:
            begun = len(self.rounds)
            if begun == self.job.last:
                self.sessions.append(Over(self.job, held, self.census, begun, theta))
            else:
                round_ = Round(self.job, held, self.census, begun + 1, theta)
                self.sessions.append(round_)
                self.rounds.append(round_)
                theta = round_.after()
            self.models.append(theta)

    def last(self, client, before=None):
        """The last round of a client before a session, or at the end."""
        rounds = [session.begun for session in self.sessions[:before]
                  if session.kind == ROUND and client in session.members]
        return max(rounds, default=0)

    def state(self):
        out = b"\1" + self.census.kept() + ids(len(self.rounds), len(self.rounds))
        for round_ in self.rounds:
            out += ids(round_.begun, len(round_.members), *round_.members)
        return out + struct.pack("<Q", self.job.parameters) + packed(self.models[-1])


def training_case(case):
    run = Training(case)
    job, everybody = run.job, list(range(len(case["clients"])))
    yield "digest of the job", job.digest.hex(), case["job"]["digest"]
    yield "groups", run.census.groups, case["groups"]
    for at, (session, held) in enumerate(zip(run.sessions, case["sessions"], strict=True)):
        what = f"session {at}: "
        if session.kind == ROUND:
            yield what + "members", job.are_whole(session.members, run.census.groups), True
            yield what + "draw", job.can_be_drawn(session.members, run.census.groups), True
            yield what + "updates", list(session.updates()), held["updates"]
        else:
            yield what + "members", session.members, everybody
            yield what + "updates", [], held["updates"]
        yield what + "model", packed(run.models[at]).hex(), held["model"]
        for name, made, due in itertools.chain(
                frame_differences(held["frames"], session.links()),
                depth_differences(held["frames"], (UNMASKING,))):
            yield what + name, made, due
    yield "state", run.state().hex(), case["state"]


# The refusals.

def read_clients(reader):
    count = reader.below(4, MOST_CLIENTS + 1)
    out = list(struct.unpack(f"<{count}I", reader.take(4 * count)))
    need(out == sorted(set(out)) and SERVER not in out, "not clients in ascending order")
    return out


class Checks(SetupChecks):
    """The checks of one session of a job."""

    def __init__(self, run, at):
        self.job, self.session = run.job, run.sessions[at]
        self.last = lambda client: run.last(client, at)
        super().__init__(run.census.setup)

    def check_opening(self, me, data):
        """The client's check, TRAIN-1, TRAIN-2, TRAIN-9 to TRAIN-11. A client that refuses drops
        out; with too few others the server ends the round, when it waits for updates."""
        session = self.session
        try:
            reader = Reader(data)
            kind, census, round_ = reader.below(1, 3), reader.take(32), reader.number(4)
            members = read_clients(reader)
            reader.end()
            need(me in members, "the receiver is not in the set")
            if kind != CENSUS:
                need(census == session.census.session, "another census than that of the client")
            if kind == ROUND:
                need(self.last(me) < round_ <= self.job.last, "a round that is not due")
                need(self.job.are_whole(members, session.census.groups), "no whole groups")
        except Refused as refusal:
            left, due = len(session.members) - 1, self.job.needed(session.members)
            if session.kind == ROUND and left < due:
                raise Refused(f"too few clients: {left} left, {due} needed", SERVER,
                              UPDATE) from refusal
            raise Refused(str(refusal), me, MODEL, [SERVER]) from None

    def check_advertisement(self, place, advertisement):
        """TRAIN-5, TRAIN-6, TRAIN-14."""
        try:
            reader = Reader(advertisement)
            rows, labelled = reader.number(4), reader.number(4)
            digest, names = reader.take(32), reader.take(16)
            reader.end()
            need(labelled <= rows, "more labelled rows than rows")
            need(digest == self.job.digest, "another job")
        except Refused as refusal:
            raise Refused(str(refusal), SERVER, SETUP, [place]) from None
        need(names == self.run.names_digest(), "other names of classes", SERVER, SETUP)

    def check_groups(self, place, data):
        """TRAIN-8, TRAIN-12, TRAIN-15. The server compares with the first client's groups."""
        try:
            reader = Reader(data)
            groups = [read_clients(reader)
                      for _ in range(reader.below(4, MOST_CLIENTS + 1))]
            reader.end()
            every = sum(groups, [])
            need(len(set(every)) == len(every), "a client is in two groups")
            due = sorted(self.session.members) if self.job.groups else []
            need(sorted(every) == due, "groups of other clients")
        except Refused as refusal:
            raise Refused(str(refusal), SERVER, MODEL, [place]) from None
        first = self.session.members[0]
        one, other = (place, first) if place != first else (self.session.members[1], first)
        need(groups == self.session.groups, f"client {one} and client {other} name other groups",
             SERVER, MODEL)

    def check(self, from_, to, kind, data):
        if kind in ("opening", "groups"):
            check = self.check_opening if kind == "opening" else self.check_groups
            return check(min(from_, to), data)
        return self.check_setup(from_, to, kind, data)


def training_refused(vectors, entry):
    """A refused message in a session in which nobody drops out."""
    run = Training(vectors["cases"][entry["case"]])
    link = entry["from"], entry["to"]
    _, kind, honest = run.sessions[entry["session"]].links()[link][entry["number"]]
    changed = unhex(entry["payload"])
    yield "one payload for another", changed != honest, True
    refusal = refused_by(entry, Checks(run, entry["session"]).check, (*link, kind, honest),
                         (*link, kind, changed))
    yield from blame(refusal, entry)


CHECKS = {"training": (training_case, training_refused)}
