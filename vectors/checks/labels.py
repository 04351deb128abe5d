"""Whole runs of label propagation, computed from the seeds alone: docs/spec/labels.md."""
import hashlib
import math
import struct
from collections import defaultdict

from .codes import code, normals, pack, unpack
from .influence import influence, nearest, neighbours, outcome, weights
from .jobs import digest
from .lwe import Lwe
from .messages import hello, roster, sealed
from .phe import Phe
from .primitives import (SERVER, agree, derive, double, extract, ids, number, pieces,
                         public, round_away, stream, unhex)
from .psm import Psm
from .punctured import trees, words
from .shade import Shade
from .sharing import signed
from .sums import Sum

SETUP, OFFLINE, DISTANCES, INFLUENCE, TILE = 1, 2, 4, 6, 2**20


def tiles(entries):
    """Messages of as many whole entries as fit. All entries have the same length."""
    each = max(1, TILE // len(entries[0])) if entries else 1
    return [b"".join(part) for part in pieces(entries, each)] or [b""]


PARAMETERS = ("backend", "bits", "neighbours", "alpha", "variant", "suite", "min_clients",
              "malicious_server", "key_bits")
CELLS = "cells", "probes", "cells_epsilon"


def parameters(case):
    """The digest of the parameters of label propagation, and of cells where there are some."""
    fields = {name: case[name] for name in PARAMETERS}
    fields |= {name: case[name] for name in CELLS if name in case}
    reals = {name: double(fields[name]) for name in ("alpha", "cells_epsilon") if name in fields}
    return digest("label", fields | reals)


class Group:
    """The setup of a session, with nothing advertised."""

    def __init__(self, session, seeds, server, identities, sealed_, min_clients):
        self.session, self.seeds, self.identities = session, seeds, identities
        self.is_sealed, self.min_clients = sealed_, min_clients
        self.everybody = range(len(seeds))
        self.tied = [self.tie(place) for place in self.everybody]
        self.secrets = [
            self.derive(seed, "key pair", place) for place, seed in enumerate(self.tied)
        ]
        self.secrets.append(self.derive(server, "key pair", SERVER))
        self.hellos = [self.hello(place) for place in self.everybody]
        self.contributions = [
            self.derive(seed, "contribution", place) for place, seed in enumerate(self.seeds)
        ]
        self.group = extract(self.session, "group seed", b"".join(self.contributions))
        self.bound = self.bind(self.group)

    def bind(self, seed):
        """The seed that follows from another one and the keys of all clients."""
        keys = b"".join(public(secret) for secret in self.secrets[:-1])
        return derive(seed, self.session, "bound to keys", keys)

    def later(self, place):
        """The later seed of a client."""
        return self.bind(self.derive(self.tied[place], "after the setup", place))

    def tie(self, place):
        """The tied seed of a client; its seed where nothing is tied."""
        return self.seeds[place]

    def advertisement(self, place):
        return b""

    def derive(self, seed, purpose, *numbers):
        return derive(seed, self.session, purpose, ids(*numbers))

    def hello(self, place):
        return hello(self.session, "sign setup", place, public(self.secrets[place]),
                     self.advertisement(place), self.identities[place])

    def roster(self, hellos=None):
        return public(self.secrets[-1]) + roster(hellos or self.hellos)

    def pair(self, a, b):
        secret = lambda client: self.secrets[-1 if client == SERVER else client]
        return agree(self.session, "pair", secret(min(a, b)), public(secret(max(a, b))))

    def contribution(self, from_, to):
        if not self.is_sealed:
            return self.contributions[from_]
        return sealed(self.session, self.pair(from_, to), from_, to, 0, self.contributions[from_])

    def contributions_of(self, place):
        return b"".join(self.contribution(place, other) for other in self.others(place))

    def admission(self, place):
        received = [self.contribution(other, place) for other in self.others(place)]
        return bytes([1] * len(self.seeds)) + b"".join(received)

    def others(self, me):
        return [other for other in self.everybody if other != me]


class Setup(Group):
    """The setup of label propagation, with `rows` rows of each client."""

    def __init__(self, case, rows, sealed_):
        self.case, self.clients, self.sizes = case, case["clients"], rows
        for name in ("backend", "bits", "classes", "variant", "malicious_server", "suite"):
            setattr(self, name, case["parameters"][name])
        self.alpha, self.k = double(case["parameters"]["alpha"]), case["parameters"]["neighbours"]
        self.dim = max((len(row) for client in self.clients
                        for row in client.get("features") or []), default=0)
        super().__init__(unhex(case["session"]), [unhex(client["seed"]) for client in self.clients],
                         unhex(case["server_seed"]),
                         [unhex(client.get("identity") or "") or None for client in self.clients],
                         sealed_, case["parameters"]["min_clients"])

    def tie(self, place):
        client = self.clients[place]
        rows, codes = client.get("features") or [], client.get("codes") or []
        data = [struct.pack("<d", double(text) + 0.0) for row in rows for text in row]
        data += [unhex(text) for text in codes]
        labels = [label % 2**32 for label in client.get("given", [])]
        text = ids(self.dim, len(rows or codes)) + b"".join(data) + ids(*labels)
        job = parameters(self.case["parameters"])
        digest = hashlib.sha256(b"undertone/v1/own input" + job + text).digest()
        return derive(self.seeds[place], self.session, "own input", digest)

    def advertisement(self, place):
        return (ids(self.sizes[place], self.dim, self.classes) + self.names_digest() +
                parameters(self.case["parameters"]))

    def names_digest(self):
        names = [name.encode() for name in self.case["parameters"].get("class_names") or []]
        if not names:
            return bytes(16)
        text = b"".join(bytes([len(name)]) + name for name in names)
        return hashlib.sha256(b"undertone/v1/class names" + text).digest()[:16]


class Run(Setup):
    def __init__(self, case):
        super().__init__(case, [len(client["given"]) for client in case["clients"]],
                         case["parameters"]["backend"] != "clear")
        server = unhex(case["server_seed"])
        self.given = [client["given"] for client in self.clients]
        self.codes = [self.codes_of(client) for client in self.clients]
        later = list(map(self.later, self.everybody))
        self.sum_seeds, self.distance_secrets, influence_seeds = (
            [self.derive(seed, purpose) for seed in later]
            for purpose in ("sums", "distances", "influence"))
        self.trees = [self.trees_of(place, self.derive(server, "influence"), seed)
                      for place, seed in enumerate(influence_seeds)]
        self.frames = by_link(case["frames"])
        self.graph = neighbours([number(pack(row)) for rows in self.codes for row in rows], self.k)

    # Codes and distances.

    def codes_of(self, client):
        if client.get("codes"):
            return [unpack(unhex(text), self.bits) for text in client["codes"]]
        rows = [[double(text) for text in row] for row in client["features"]]
        pi = normals(self.derive(self.group, "projection"), self.bits * len(rows[0]))
        return [code(pi, row) for row in rows]

    def own_rows(self, place):
        codes = [number(pack(row)) for row in self.codes[place]]
        out = []
        for at, (x, label) in enumerate(zip(codes, self.given[place], strict=True)):
            near = nearest([((x ^ y).bit_count(), i) for i, y in enumerate(codes) if i != at],
                           self.k)
            out.append(bytes([label >= 0]) + b"".join(struct.pack("<IH", i, h) for h, i in near))
        return tiles(out)

    def backend_run(self):
        seed = self.derive(self.bound, "distances")
        if self.backend == "psm":
            return Psm(self.session, self.suite, self.bits, self.codes, seed,
                       lambda client: self.pair(client, SERVER), self.min_clients)
        arguments = self.session, self.bits, self.codes, self.distance_secrets, self.pair, 1
        if self.backend == "phe":
            return Phe(*arguments, self.case["parameters"]["key_bits"], seed)
        if self.backend == "lwe":
            return Lwe(*arguments, self.suite, seed)
        return Shade(*arguments, len(self.clients))

    def reported(self, place):
        """The payloads that the server received from a backend, after the client's own rows."""
        frames = [frame for frame in self.frames[place, SERVER] if frame["phase"] == DISTANCES]
        return [unhex(frame["payload"]) for frame in frames[len(self.own_rows(place)):]]

    def between(self):
        """The messages between clients: phase and payload."""
        return {link: [(frame["phase"], unhex(frame["payload"])) for frame in frames]
                for link, frames in self.frames.items() if SERVER not in link}

    def distances(self):
        """The messages of the backend by link, and further values to compare."""
        out, extra = {}, []
        if self.backend in ("clear", "sketch"):
            for place in self.everybody:
                codes = tiles([pack(row) for row in self.codes[place]])
                out[place, SERVER] = [(DISTANCES, "codes", tile) for tile in codes]
            return out, extra
        run = self.backend_run()
        if self.backend == "psm":
            members = (DISTANCES, "set", ids(*self.everybody))
            for place in self.everybody:
                out[place, SERVER] = [(DISTANCES, "psm", data)
                                      for data in run.to_server(place, [self.everybody])]
                out[SERVER, place] = [members, members]
            received = {
                place: [data for _, _, data in out[place, SERVER]] for place in self.everybody
            }
            extra.append(("distances by halves", run.server(received, self.everybody),
                          run.distances(self.everybody)))
            return out, extra
        reported = {place: self.reported(place) for place in self.everybody}
        between = self.between()
        for place, payloads in reported.items():
            out[place, SERVER] = [(DISTANCES, "report", payload) for payload in payloads]
        if self.backend in ("lwe", "shade"):
            found = run.server(reported)
            extra += [("distances by sums", rows, run.distances(*link))
                      for link, rows in found.items()]
            extra += [(f"reports of {place}", run.to_server(place, reported[place]), True)
                      for place in self.everybody]
            between = run.links()
        else:
            held = between | {(place, SERVER): [(DISTANCES, data) for data in payloads]
                              for place, payloads in reported.items()}
            extra += run.check(held)
        for link, messages in between.items():
            out[link] = [(phase, "between clients", data) for phase, data in messages]
        return out, extra

    # Influence and labels.

    def labels(self, place):
        """The labels of its labelled rows."""
        return tuple(label for label in self.given[place] if label >= 0)

    def trees_of(self, place, server, seed):
        seeds = self.derive(server, "influence", place), seed
        return trees(self.session, b"influence", SERVER, place, seeds, self.classes,
                     self.labels(place))

    def offline(self, place):
        """The messages about the trees, to the server and back."""
        made, labels = self.trees[place], self.labels(place)
        to = [(OFFLINE, "labelled rows", ids(len(labels)) + made.made.setup)]
        back = [(OFFLINE, "points", made.made.offer)]
        if labels:
            to.append((OFFLINE, "corrections", made.batch.corrections))
            to.append((OFFLINE, "proofs", made.batch.proof + made.changes))
            back.append((OFFLINE, "challenges", made.batch.challenge))
            tree = len(made.corrections) // len(labels)
            back += [(OFFLINE, "trees", tile)
                     for tile in tiles(pieces(made.corrections, tree or 1))
                     if tree]
        return to, back

    def unlabelled(self, place=None):
        """Global ids of the unlabelled rows of one client, or of all clients."""
        out, at = [], 0
        for other, given in enumerate(self.given):
            out += [at + i for i, label in enumerate(given) if label < 0 and place in (None, other)]
            at += len(given)
        return out

    def labelled(self, place):
        start = sum(map(len, self.given[:place]))
        return [start + i for i, label in enumerate(self.given[place]) if label >= 0]

    def first(self, place):
        return sum(len(self.unlabelled(other)) for other in range(place))

    def plan(self, place):
        return ids(len(self.unlabelled()), self.first(place))

    def column_payloads(self, place):
        """The messages of columns as they were sent, because the server solves to a residual."""
        frames = [frame for frame in self.frames[SERVER, place] if frame["phase"] == INFLUENCE]
        data = b"".join(unhex(frame["payload"]) for frame in frames[1:])
        return tiles(pieces(data, 4 * len(self.unlabelled()))) if data else []

    def columns(self, place):
        data = b"".join(self.column_payloads(place))
        return pieces(struct.unpack(f"<{len(data) // 4}I", data), len(self.unlabelled()))

    def streams(self, place):
        """For each tree the words of every leaf."""
        leaves = [leaf for tree in self.trees[place].leaves for leaf in tree]
        return pieces(words(leaves, len(self.unlabelled())), self.classes)

    def column_differences(self):
        """Compares the unmasked words with those of our own columns. They may differ by 1, because
        the server solves to a residual."""
        rows = [row for place in self.everybody for row in self.labelled(place)]
        w = weights(self.graph, self.bits, self.variant)
        solved = [[max(0.0, x) for x in column] for column in influence(w, self.alpha, rows)]
        reach, own = [sum(row) for row in zip(*solved)], iter(solved)
        for place in self.everybody:
            sent = self.columns(place)
            yield f"columns for client {place}", len(sent), len(self.labelled(place))
            for got, leaves in zip(sent, self.streams(place)):
                column = next(own)
                share = [
                    column[row] and min(1.0, column[row] / reach[row]) for row in self.unlabelled()
                ]
                found = [(word - sum(masks)) % 2**32
                         for word, *masks in zip(got, *leaves, strict=True)]
                near = all(word <= 2**30 and abs(word - round_away(math.ldexp(x, 30))) <= 1
                           for word, x in zip(found, share, strict=True))
                yield f"a column for client {place}", near, True

    def scores(self, place):
        """The client's shares. To its own class it adds the column less all leaves but that one; to
        each other class it adds the leaf."""
        out = [[0] * self.classes for _ in self.unlabelled()]
        for label, column, leaves in zip(self.labels(place), self.columns(place),
                                         self.streams(place), strict=True):
            for r, row in enumerate(out):
                known = [0 if c == label else leaf[r] for c, leaf in enumerate(leaves)]
                known[label] = column[r] - sum(known)
                row[:] = map(sum, zip(row, known))
        return [word % 2**32 for row in out for word in row]

    def server_scores(self):
        """The server's shares from the trees of all clients: minus all leaves."""
        streams = [leaves for place in self.everybody for leaves in self.streams(place)]
        return [-sum(leaves[c][r] for leaves in streams) % 2**32
                for r in range(len(self.unlabelled())) for c in range(self.classes)]

    def pads(self, place):
        seed = self.derive(self.derive(self.bound, "counts"), "counts", place)
        return [
            number(eight[:4]) for eight in pieces(stream("chacha20", seed, 8 * self.classes), 8)
        ]

    def words(self, place):
        counts = [self.labels(place).count(c) + pad for c, pad in enumerate(self.pads(place))]
        shared = counts if self.variant == "balanced" else []
        return self.scores(place) + [count % 2**32 for count in shared]

    def sum(self):
        shared = self.classes if self.variant == "balanced" else 0
        rows = [(self.first(place), len(self.unlabelled(place))) for place in self.everybody]
        return Sum(self.session, 0, self.suite, 4, self.classes,
                   (len(self.unlabelled()), shared), self.sum_seeds, rows,
                   list(map(self.words, self.everybody)), self.min_clients, True,
                   self.malicious_server, None, self.identities, server=self.server_scores())

    def outcomes(self, place, total):
        """The label and the confidence of every row."""
        counts = [1] * self.classes
        if self.variant == "balanced":
            pads = map(sum, zip(*map(self.pads, self.everybody)))
            counts = [(word - pad) % 2**32 for word, pad in zip(total.total(), pads, strict=True)]
        scores = [math.ldexp(max(0, signed(word % 2**32, 32)), -30) for word in total.own(place)]
        found = iter(pieces(scores, self.classes))
        for label in self.given[place]:
            if label >= 0:
                yield label, 1.0
            else:
                own = zip(next(found), counts)
                yield outcome([z / count if count else 0.0 for z, count in own])

    def links(self):
        """All messages by link, as phase, kind and payload; and further values to compare."""
        out, (middle, extra), total = defaultdict(list), self.distances(), self.sum()
        for place in self.everybody:
            to = [(SETUP, "hello", self.hellos[place]),
                  (SETUP, "contributions", self.contributions_of(place))]
            to_trees, back_trees = self.offline(place)
            to += to_trees + [(DISTANCES, "own rows", tile) for tile in self.own_rows(place)]
            to += middle.pop((place, SERVER))
            to += [(phase, "sum", data) for phase, data in total.to_server(place)]
            out[place, SERVER] = to
            back = [(SETUP, "roster", self.roster()),
                    (SETUP, "contributions", self.admission(place))]
            back += back_trees + middle.pop((SERVER, place), [])
            back.append((INFLUENCE, "plan", self.plan(place)))
            back += [(INFLUENCE, "columns", data) for data in self.column_payloads(place)]
            back += [(phase, "sum", data) for phase, data in total.to_client(place)]
            out[SERVER, place] = back
            extra += [(f"{name} {place}", a, b)
                      for name, a, b in self.trees[place].differences(self.labels(place))]
        extra += [(f"outcomes of {place}", *self.compare(place, total)) for place in self.everybody]
        return out | middle, extra

    def compare(self, place, total):
        client = self.clients[place]
        held = list(zip(client["labels"], map(double, client["confidences"]), strict=True))
        made = list(self.outcomes(place, total))
        near = len(made) == len(held) and all(
            a == b and abs(x - y) <= 1e-13 for (a, x), (b, y) in zip(made, held))
        return (held, held) if near else (made, held)


def by_link(frames):
    out = defaultdict(list)
    for frame in frames:
        out[frame["from"], frame["to"]].append(frame)
    return out


def frame_differences(frames, due):
    """Compares all frames with the messages that are due by link: phase, kind and payload."""
    frames = by_link(frames)
    yield "links", set(frames), set(due)
    for link, messages in due.items():
        what, sent = f"from {link[0]} to {link[1]}: ", frames[link]
        yield what + "numbers", [frame["number"] for frame in sent], list(range(len(messages)))
        for frame, (phase, kind, payload) in zip(sent, messages):
            name = f"{what}{kind}, number {frame['number']}, "
            yield name + "phase", frame["phase"], phase
            yield name + "length", frame["length"], len(payload)
            yield name + "digest", frame["sha256"], hashlib.sha256(payload).hexdigest()
            if frame.get("payload") is not None:
                yield name + "payload", frame["payload"], payload.hex()


def depth_differences(frames, loose=(OFFLINE, DISTANCES, INFLUENCE)):
    """A depth is one more than that of a frame that the sender had received. In phases in lockstep
    it is the deepest such frame, in `loose` ones any of them."""
    got, last = defaultdict(set), defaultdict(int)
    for at, frame in enumerate(frames):
        depth, sender = frame["depth"], frame["from"]
        allowed = {1, *(d + 1 for d in got[sender])}
        if frame["phase"] not in loose:
            allowed = {max(allowed)}
        yield f"depth of frame {at}", depth in allowed and depth >= last[sender], True
        last[sender] = depth
        got[frame["to"]].add(depth)


def label_case(case):
    run = Run(case)
    flat = lambda which: [[pair[which] for pair in near] for near in run.graph]
    yield "neighbours", flat(1), case["neighbours"]
    yield "distances", flat(0), case["distances"]
    yield from run.column_differences()
    due, extra = run.links()
    yield from extra
    yield from frame_differences(case["frames"], due)
    yield from depth_differences(case["frames"])
