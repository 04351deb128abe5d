"""Whole runs of graph networks over clients, computed from seeds and inputs, and the refusals. See
docs/spec/fedgraph.md."""
import hashlib
import math
import struct
from collections import defaultdict

from . import graph_network as net
from .graph_network import Graph, Job, Learner, Node, Whole
from .labels import SETUP, Group, depth_differences, frame_differences
from .labels_refused import SetupChecks
from .messages import Reader, hello_alone, read_roster
from .primitives import SERVER, Refused, derive, double, hexed, ids, need, number, pieces, unhex
from .reasons import blame, refused_by
from .series import ALL, TILE, Block, Series, Sum, check_tile
from .sharing import encode, fraction_bits, signed

FEATURES, SOFT_VOTE, TRAINING, PREDICTION = 25, 26, 27, 28
VOTE, MEAN, FORWARD, LOGITS, BACKWARD, SLOPES = range(1, 7)
LAST = ANEW = PREPARED = 2**32 - 1
# The size of a word and the range, for values and for logits and slopes of weights.
VALUES, FINE, SHARES = (4, 64.0), (8, 4096.0), (8, 1.0)


class Checkpoint:
    """Its bytes are `data`."""

    def __init__(self, data):
        self.data, reader = data, Reader(data)
        need(reader.take(5) == b"UTFG\x01", "no checkpoint")
        self.job = reader.take(32)
        self.members = [reader.number(4) for _ in range(reader.number(4))]
        self.features = reader.take(32)
        self.seed = reader.take(32)
        place = len(data) - len(reader.data)
        self.step = reader.number(4)
        self.has_begun = self.step != PREPARED
        self.entry = ids(self.step)
        if not self.has_begun:
            self.step = 0
        data = data[:place] + ids(self.step) + data[place + 4:]
        self.digest = hashlib.sha256(data).digest()[:16]
        doubles = lambda count: list(struct.unpack(f"<{count}d", reader.take(8 * count)))
        self.powers = doubles(2)
        count = reader.number(4)
        self.weights, *self.moments = (doubles(count) for _ in range(3))
        reader.end()

    def key(self):
        return self.step, self.digest


def checkpoint(job, members, features, seed, learner, has_begun):
    weights = learner.flat()
    numbers = lambda values: struct.pack(f"<{len(values)}d", *values)
    steps = learner.steps if has_begun else PREPARED
    state = weights + learner.adam.moments[0] + learner.adam.moments[1]
    return Checkpoint(b"UTFG\x01" + job.digest() + ids(len(members), *members) + features + seed +
                      ids(steps) + numbers(learner.adam.powers) + ids(len(weights)) +
                      numbers(state))


class Drawer:
    """The checkpoints of a party, the newest first."""

    def __init__(self, held):
        self.saved = [Checkpoint(unhex(text)) for text in held]
        self.now = self.saved[:]

    def keep(self, made):
        self.now = [made, *(old for old in self.now if old.step < made.step)][:2]


def floats(matrices):
    """The messages, and the values that their receiver has."""
    values = net.flat(matrices)
    data = struct.pack(f"<{len(values)}f", *values)
    return pieces(data, TILE), iter(struct.unpack(f"<{len(values)}f", data))


def shaped(values, rows, columns):
    values = iter(values)
    return [[next(values) for _ in range(columns)] for _ in range(rows)]


class Run(Group):
    """A run. `out` has all messages by link, as phase, kind and payload."""

    def __init__(self, case):
        self.case, self.job = case, Job(case["job"])
        self.clients, self.labels = case["clients"], case["labels"]
        self.drawers = [Drawer(client["states"]["saved"]) for client in self.clients]
        self.own_drawer = Drawer(case["server_states"]["saved"])
        context, server = self.job.context(unhex(case["session"])), unhex(case["server_seed"])
        super().__init__(context, [derive(unhex(client["seed"]), context, "group", ids(place))
                                   for place, client in enumerate(self.clients)],
                         derive(server, context, "group"), [None] * len(self.clients), True,
                         self.job.clients)
        self.members, self.phase, self.out = list(self.everybody), SETUP, defaultdict(list)
        self.loss = [None, None]  # Of clients, and of the server.
        self.predicted = self.server_predicted = self.votes = None
        self.groups, self.extra = [], []
        self.start = self.starting_point()
        self.run(server)

    # The setup and the start.

    def advertisement(self, place):
        saved = self.drawers[place].saved
        keys = b"".join(held.entry + held.digest for held in saved)
        return self.job.digest() + bytes([len(saved)]) + keys

    def has_all(self, key):
        return all(key in map(Checkpoint.key, drawer.saved) for drawer in self.drawers)

    def common(self):
        """The steps of the checkpoints that all clients have."""
        return [held.step for held in self.drawers[0].saved if self.has_all(held.key())]

    def starting_point(self):
        """The step in `Start`, or None."""
        has_begun = any(held.has_begun for drawer in self.drawers for held in drawer.saved)
        if not self.job.steps or not has_begun:
            need(all(held.step == 0 for held in self.own_drawer.saved), "clients lost checkpoints")
            return None
        if self.job.cut == "embeddings":
            need(self.common() == [0], "no common checkpoint")
            return 0
        return max(held.step for held in self.own_drawer.saved if held.step in self.common())

    def start_message(self):
        return ids(ANEW if self.start is None else self.start)

    def resumed(self, drawer, step):
        return next((held for held in drawer.saved if held.step == step), None)

    def derived(self, purpose):
        return derive(self.secret, self.job.digest(), purpose)

    # Messages.

    def say(self, from_, to, kind, data):
        self.out[from_, to].append((self.phase, kind, data))

    def say_floats(self, from_, to, matrices):
        tiles, values = floats(matrices)
        for tile in tiles:
            self.say(from_, to, "floats", tile)
        return [shaped(values, len(matrix), len(matrix[0]) if matrix else 0)
                for matrix in matrices]

    def add_up(self, step, kind, fixed, blocks, terms):
        """A sum. `terms` are the values of each client for all blocks, or None for zeros. Returns
        what an owner learns."""
        (size, most), count = fixed, sum(block.words for block in blocks)
        bits = fraction_bits(8 * size, len(self.members), most)
        words = {client: [encode(x, most, bits, 8 * size) for x in own] if own else [0] * count
                 for client, own in zip(self.members, terms, strict=True)}
        made = Sum(self.series, (step, kind), size, blocks, words)
        self.extra += made.differences()
        for client in self.members:
            for tile in made.from_client(client):
                self.say(client, SERVER, "words", tile)
            for tile in made.to_client(client):
                self.say(SERVER, client, "words", tile)
        value = lambda word: math.ldexp(float(signed(word, 8 * size)), -bits)
        return lambda owner: map(value, made.clear(owner))

    def for_all(self, step, kind, fixed, contributors, terms):
        length = next(len(own) for own in terms if own)
        made = self.add_up(step, kind, fixed, [Block(ALL, length, contributors)], terms)
        return list(made(ALL))

    def exchange(self, step, kind, values):
        """A sum of the neighbours' values at each client of the network, each times the receiver's
        share, or times the sender's when slopes go back."""
        graph, size = self.graph, (len(values[0]), len(values[0][0]))
        share = lambda to, from_: graph.share(from_ if kind == BACKWARD else to)
        blocks = [Block(m, size[0] * size[1], graph.near[m]) for m in graph.members]
        term = lambda from_, to: (net.scaled(values[from_], share(to, from_))
                                  if to in graph.near[from_] else net.zeros(*size))
        terms = [net.flat(term(from_, to) for to in graph.members) for from_ in self.members]
        made = self.add_up(step, kind, VALUES, blocks, terms)
        return [shaped(made(m), *size) if m in graph.members else None for m in self.members]

    # The run.

    def run(self, server):
        job = self.job
        for place in self.everybody:
            self.say(place, SERVER, "hello", self.hellos[place])
            self.say(SERVER, place, "roster", self.roster())
            self.say(place, SERVER, "contributions", self.contributions_of(place))
            self.say(SERVER, place, "contributions", self.admission(place))
        self.phase = FEATURES
        for place in self.everybody:
            self.say(SERVER, place, "start", self.start_message())
        self.secret = (derive(self.group, self.session, "feature graph") if self.start is None
                       else self.resumed(self.drawers[0], self.start).seed)
        tags = list(map(self.tags, self.everybody))
        said = [self.labels_tag() + b"".join(own) for own in tags]
        for place in self.everybody:
            for other in [*self.others(place), SERVER]:
                self.say(place, other, "features", said[place])
        lengths = [ids(len(message)) + message for message in said]
        self.features = hashlib.sha256(
            b"undertone/v1/features of a graph" + b"".join(lengths)).digest()
        if self.start is not None:
            held = self.resumed(self.drawers[0], self.start)
            need(held.features == self.features, "other features than at the beginning")
        self.series = Series(self.session, "feature graph", job.suite, self.members,
                             self.pair, self.group)
        self.graph = Graph(tags, "")
        self.phase = SOFT_VOTE
        if job.queries:
            terms = [net.flat([net.read_rows(client["probabilities"])]) for client in self.clients]
            votes = self.for_all(0, VOTE, SHARES, self.members, terms)
            self.votes = net.scaled(shaped(votes, job.queries, job.classes),
                                    1.0 / len(self.members))
        if job.steps:
            self.phase = TRAINING
            self.graph = Graph(tags, job.cut)
            self.train(derive(server, self.session, "weights"))

    def tag(self, purpose, text):
        return derive(self.derived("feature names"), self.job.digest(), purpose, text)

    def labels_tag(self):
        return self.tag("labels", struct.pack(f"<{len(self.labels)}H", *self.labels))[:16]

    def tags(self, place):
        return sorted(self.tag("feature", name.encode())[:8]
                      for name in self.clients[place]["features"])

    def learner(self, arrays, seed, held):
        learner = Learner(self.job, len(self.graph.tags), arrays, held.seed if held else seed)
        if held:
            learner.set(held.weights)
            learner.steps = held.step
            learner.adam.moments, learner.adam.powers = held.moments, held.powers
        return learner

    def save(self, server=True, clients=True):
        if server:
            self.own_drawer.keep(checkpoint(self.job, self.members, self.features,
                                             self.own_seed, self.own, True))
        for drawer in self.drawers if clients else ():
            self.save_client(drawer)

    def save_client(self, drawer, has_begun=True):
        drawer.keep(checkpoint(self.job, self.members, self.features, self.secret, self.theirs,
                               has_begun))

    def begin(self):
        """All clients have a checkpoint before the first of them contributes."""
        for place, drawer in zip(self.everybody, self.drawers, strict=True):
            if self.start is None:
                self.save_client(drawer, False)
                self.say(place, SERVER, "ready", b"")
                self.say(SERVER, place, "go", b"")
            if self.start is None or not self.resumed(drawer, self.start).has_begun:
                self.save_client(drawer)
        if self.start is None:
            self.save(clients=False)

    def learn(self, learner, slopes):
        """A step of the server, or of the clients."""
        learner.step(slopes)
        if learner.steps % self.job.every == 0 or learner.steps == self.job.steps:
            self.save(learner is self.own, learner is self.theirs)

    def train(self, own_seed):
        job, held = self.job, None
        self.groups = net.clusters(self.labels, job.classes, job.cluster, job.clustering,
                                   self.derived("clusters"))
        self.wanted = net.targets(self.labels, job.classes, self.groups)
        self.factor = net.slope_factor(len(self.groups), self.graph.members)
        self.theirs = self.learner(job.of_clients, self.derived("weights"),
                                   self.resumed(self.drawers[0], self.start))
        if self.start is not None:
            steps = [self.start] if job.cut != "embeddings" else [
                saved.step for saved in self.own_drawer.saved]
            held = self.resumed(self.own_drawer, max(steps))
        self.own_seed = held.seed if held else own_seed
        self.own = self.learner(job.of_server, own_seed, held)
        self.begin()
        self.say(0, SERVER, "count", ids(len(self.groups)))
        if job.cut != "client":
            self.wanted = self.say_floats(0, SERVER, [self.wanted])[0]
        own = [net.means(net.read_rows(client["embeddings"]), self.groups)
               for client in self.clients]
        queries = [net.read_rows(client["queries"]) for client in self.clients]
        {"embeddings": self.with_embeddings, "server": self.with_sums,
         "client": self.with_clients}[job.cut](own, queries)

    def give(self, whole):
        """The server predicts."""
        self.server_predicted = net.softmax(whole.logits())
        for place in self.everybody:
            self.predicted = self.say_floats(SERVER, place, [self.server_predicted])[0]

    def with_embeddings(self, own, queries):
        to_server = lambda rows: [self.say_floats(place, SERVER, [rows[place]])[0]
                                  for place in self.everybody]
        means = lambda rows: [self.graph.mean(m, rows) for m in self.members]
        whole = lambda rows, mean: Whole(
            self.own.weights, self.graph,
            [net.own_terms(self.own.weights, *both) for both in zip(rows, mean)])
        own = to_server(own)
        mean = means(own)
        while self.own.steps < self.job.steps:
            self.loss[1], first, others = whole(own, mean).step(self.wanted)
            slopes = [*net.first_slopes(self.graph, own, mean, first), *others]
            self.learn(self.own, net.flat([net.scaled(s, self.factor) for s in slopes][i]
                                          for i in self.job.of_server))
        self.phase = PREDICTION
        if self.job.predict == "graph":
            queries = to_server(queries)
            self.give(whole(queries, means(queries)))

    def server_sums(self, step, values):
        """The network at the server, from sums of the first layer."""
        graph, weights = self.graph, self.theirs.weights
        size = len(values[0]), self.job.width
        terms = []
        for from_, rows in enumerate(values):
            mine, mean = (net.product(rows, weights[array]) for array in (net.W1, net.W2))
            term = lambda to: (mine if to == from_ else net.scaled(mean, graph.share(to))
                               if to in graph.near[from_] else net.zeros(*size))
            terms.append(net.flat(term(to) for to in self.members))
        blocks = [Block(SERVER, size[0] * size[1], sorted([m, *graph.near[m]]))
                  for m in self.members]
        sums = list(self.add_up(step, FORWARD, VALUES, blocks, terms)(SERVER))
        return Whole(self.own.weights, graph,
                     [shaped(part, *size) for part in pieces(sums, size[0] * size[1])])

    def with_sums(self, own, queries):
        while self.own.steps < self.job.steps:
            step = self.own.steps + 1
            self.loss[1], first, others = self.server_sums(step, own).step(self.wanted)
            terms = []
            for m, rows in enumerate(own):
                told = self.say_floats(SERVER, m, [first[m], self.graph.spread(m, first)])
                slopes = [net.product(net.turned(rows), slopes) for slopes in told]
                terms.append(net.flat(net.scaled(part, self.factor) for part in slopes))
            sums = self.for_all(step, SLOPES, FINE, self.graph.members, terms)
            self.learn(self.theirs, sums)
            self.learn(self.own, net.flat(net.scaled(part, self.factor) for part in others))
        self.phase = PREDICTION
        if self.job.predict == "graph":
            self.give(self.server_sums(LAST, queries))

    def forward(self, step, own, mean):
        """The nodes of the network at each client, and the logits."""
        graph, weights = self.graph, self.theirs.weights
        nodes = [Node(weights, graph.edges[m], net.own_terms(weights, own[m], mean[m]))
                 if m in graph.members else None for m in self.members]
        none = net.zeros(len(own[0]), self.job.width)
        told = self.exchange(step, FORWARD, [node.gained if node else none for node in nodes])
        share = 1.0 / len(graph.members)
        terms = [net.flat(net.scaled(part, share) for part in [node.forward(mean)]) if node else
                 None for node, mean in zip(nodes, told)]
        logits = self.for_all(step, LOGITS, FINE, graph.members, terms)
        return nodes, net.with_line(shaped(logits, len(own[0]), self.job.classes),
                                    weights[net.P][0])

    def with_clients(self, own, queries):
        graph = self.graph
        mean = self.exchange(0, MEAN, own)
        none = net.zeros(len(self.groups), self.job.width)
        while self.theirs.steps < self.job.steps:
            step = self.theirs.steps + 1
            nodes, logits = self.forward(step, own, mean)
            self.loss[0], of_logits = net.loss_of(logits, self.wanted)
            second = [node.slopes(of_logits) if node else none for node in nodes]
            spread = self.exchange(step, BACKWARD, second)
            terms = [None] * len(self.members)
            for m in graph.members:
                first = nodes[m].back(second[m], spread[m])
                parts = [net.product(net.turned(rows), first) for rows in (own[m], mean[m])]
                parts += nodes[m].weight_slopes(first, second[m], of_logits)
                terms[m] = net.flat(net.scaled(part, self.factor) for part in parts)
            self.learn(self.theirs, self.for_all(step, SLOPES, FINE, graph.members, terms))
            self.learn(self.own, [])
        self.phase = PREDICTION
        if self.job.predict == "graph":
            _, logits = self.forward(LAST, queries, self.exchange(LAST, MEAN, queries))
            self.predicted = net.softmax(logits)


def written(rows):
    return rows and net.write_rows(rows)


def optional(value):
    return None if value is None else hexed(value)


def state_differences(who, drawer, held):
    made = [{"step": kept.step, "sha256": hashlib.sha256(kept.data).hexdigest()}
            for kept in drawer.now]
    yield f"checkpoints of {who}", made, held["kept"]
    for kept in drawer.saved:
        yield f"a checkpoint of {who}", len(kept.weights), len(kept.moments[0])


def run_case(case):
    run = Run(case)
    yield "digest of the job", run.job.digest().hex(), case["job"]["digest"]
    yield "context", run.session.hex(), case["context"]
    yield from run.extra
    yield from frame_differences(case["frames"], run.out)
    # Clients send features before they read those of others.
    yield from depth_differences(case["frames"], (FEATURES,))
    yield "number of clusters", len(run.groups), case["clusters"]
    yield "loss", optional(run.loss[1]), case["loss"]
    yield "predictions of the server", written(run.server_predicted), case["predicted"]
    yield from state_differences("the server", run.own_drawer, case["server_states"])
    for place, client in enumerate(case["clients"]):
        yield f"votes of {place}", written(run.votes), client["votes"]
        yield f"predictions of {place}", written(run.predicted), client["predicted"]
        yield f"loss of {place}", optional(run.loss[0]), client["loss"]
        yield f"neighbours of {place}", run.graph.near[place], client["neighbours"]
        yield from state_differences(place, run.drawers[place], client["states"])


# Refusals.

class Checks(SetupChecks):
    """Each message, as its receiver checks it."""

    def check_roster(self, me, data):
        super().check_roster(me, data)
        entries = read_roster(Reader(data[32:]), 1)
        for place, (_, advertisement, _) in entries.items():
            self.blaming(me, SETUP, place, self.read_hello, advertisement)

    def read_hello(self, data):
        reader = Reader(data)
        digest = reader.take(32)
        for _ in range(reader.below(1, 3)):
            reader.take(20)
        reader.end()
        need(digest == self.run.job.digest(), "a hello of another job")

    def check_start(self, me, data):
        reader, run = Reader(data), self.run
        step = reader.number(4)
        reader.end()
        if step == ANEW:
            need(not any(held.has_begun for held in run.drawers[me].saved),
                 "it starts anew, although this client has begun")
            return
        held = run.resumed(run.drawers[me], step)
        need(held and run.has_all(held.key()), "a step that not all have")

    def check_features(self, me, data):
        labels, tags = Reader(data).take(16), pieces(data[16:], 8)
        need(1 <= len(data[16:]) // 8 <= 4096, "a number of features that is not possible")
        need(len(data) % 8 == 0, "tags of another length")
        need(tags == sorted(set(tags)), "tags that do not ascend, each once")
        return labels

    def check_count(self, data):
        reader, job = Reader(data), self.run.job
        count = reader.below(4, job.rows // -(-job.cluster // 2) + 1)
        reader.end()
        need(count, "there are no clusters")

    def check_floats(self, honest, data):
        need(len(data) == len(honest), f"{len(data)} bytes of values, {len(honest)} are due")
        values = struct.unpack(f"<{len(data) // 4}f", data)
        need(all(map(math.isfinite, values)), "a value that is not finite")

    def check(self, from_, to, phase, kind, honest, data):
        blaming = lambda check, *arguments: self.blaming(to, phase, from_, check, *arguments)
        if phase == SETUP:
            self.check_setup(from_, to, kind, data)
        elif kind == "features":
            labels = blaming(self.check_features, to, data)
            need(to == SERVER or labels == self.run.labels_tag(), "their labels differ", to, phase,
                 [to, from_])
        elif kind == "start":
            blaming(self.check_start, to, data)
        elif kind in ("ready", "go"):
            blaming(lambda: need(not data, f"a signal of {len(data)} bytes, it has none"))
        elif kind == "count":
            blaming(self.check_count, data)
        elif kind == "floats":
            blaming(self.check_floats, honest, data)
        else:
            blaming(check_tile, honest, data)


def run_refused(vectors, entry):
    run = Run(vectors["cases"][entry["case"]])
    link = entry["from"], entry["to"]
    phase, kind, honest = run.out[link][entry["number"]]
    changed = unhex(entry["payload"])
    yield "one payload for another", changed != honest, True
    message = *link, phase, kind, honest
    refusal = refused_by(entry, Checks(run).check, (*message, honest), (*message, changed))
    yield from blame(refusal, entry)


CHECKS = {"feature-graph": (run_case, run_refused)}
