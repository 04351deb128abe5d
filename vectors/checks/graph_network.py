"""The local part of graph networks: clusters, the graph of clients, the network, its slopes and
Adam. Sums are in the order of the library, so all numbers are equal. See docs/spec/fedgraph.md."""
import math

from .jobs import context, digest, fields_of
from .libm import exp, log
from .primitives import Stream, double, hexed, number, round_away, unhex

ARRAYS = W1, W2, W3, B, V1, V2, V3, C, O, P = range(10)
OF_CLIENTS = {"embeddings": range(0), "server": range(2), "client": range(10)}


class Job:
    """The parameters of a job."""

    def __init__(self, held):
        self.fields = fields_of(held)
        for name in ("clients", "rows", "queries", "classes", "width", "cluster", "clustering",
                     "steps", "rate", "cut", "predict", "reveal_embeddings", "suite"):
            setattr(self, name, self.fields[name])
        self.every = self.fields["checkpoint"]
        self.of_clients = OF_CLIENTS[self.cut]
        self.of_server = range(len(self.of_clients), len(ARRAYS))

    def digest(self):
        return digest("fedgraph", self.fields)

    def context(self, session):
        return context(session, self.digest())

    def sizes(self, tags):
        d, c = self.width, self.classes
        layer = [(d, d), (d, d), (tags, d), (1, d)]
        return layer + layer + [(d, c), (1, c)]


# Matrices.

def zeros(rows, columns):
    return [[0.0] * columns for _ in range(rows)]


def dot(a, b):
    """In order, and each product rounded: `sum` may be more exact."""
    total = 0.0
    for x, y in zip(a, b, strict=True):
        total += x * y
    return total


def turned(a):
    return [list(column) for column in zip(*a)]


def product(a, b):
    columns = turned(b)
    return [[dot(row, column) for column in columns] for row in a]


def plus(a, b, factor=1.0):
    return [[x + factor * y for x, y in zip(p, q, strict=True)] for p, q in zip(a, b, strict=True)]


def scaled(a, factor):
    return [[x * factor for x in row] for row in a]


def total(matrices):
    """The sum of matrices, the first one as it is."""
    out, *rest = matrices
    for matrix in rest:
        out = plus(out, matrix)
    return out


def column_sums(a):
    out = [0.0] * len(a[0])
    for row in a:
        out = [x + y for x, y in zip(out, row)]
    return [out]


def with_line(a, line):
    return [[x + y for x, y in zip(row, line, strict=True)] for row in a]


def positive(a):
    return [[max(x, 0.0) for x in row] for row in a]


def where_positive(a, other):
    return [[0.0 if y <= 0 else x for x, y in zip(p, q)] for p, q in zip(a, other, strict=True)]


def means(rows, groups):
    out = []
    for group in groups:
        line = [0.0] * len(rows[0])
        for row in group:
            line = [x + y for x, y in zip(line, rows[row])]
        out.append([x / len(group) for x in line])
    return out


def softmax(a):
    out = []
    for row in a:
        powers = [exp(x - max(row)) for x in row]
        whole = 0.0
        for x in powers:
            whole += x
        out.append([x / whole for x in powers])
    return out


def flat(matrices):
    return [x for matrix in matrices for row in matrix for x in row]


def read_rows(held):
    return [[double(text) for text in row] for row in held]


def write_rows(rows):
    return [[hexed(x) for x in row] for row in rows]


# Clusters.

def shuffled(stream, rows):
    rows = list(rows)
    for i in range(len(rows) - 1, 0, -1):
        at = number(stream.read(8)) % (i + 1)
        rows[i], rows[at] = rows[at], rows[i]
    return rows


def clusters(labels, classes, size, clustering, seed):
    stream, out, rest = Stream(seed), [], range(len(labels))
    if clustering == "conditioned":
        left = [shuffled(stream, (row for row, label in enumerate(labels) if label == class_))
                for class_ in range(classes)]
        most = max(1, round_away(0.7 * size))
        while len(out) < len(labels) // size:
            largest = max(left, key=len)
            if len(largest) < most:
                break
            out.append(largest[-most:])
            del largest[-most:]
        rest = [row for rows in left for row in rows]
    rest = shuffled(stream, rest)
    for cluster in out:
        count = min(size - len(cluster), len(rest))
        cluster += rest[len(rest) - count:]
        del rest[len(rest) - count:]
    out += [rest[at:at + size] for at in range(0, len(rest), size)]
    return [cluster for cluster in out if 2 * len(cluster) >= size]


def targets(labels, classes, groups):
    return means([[float(label == c) for c in range(classes)] for label in labels], groups)


# The graph.

class Graph:
    """The graph of clients with these tags. With the cut `client`, only the two-core is left."""

    def __init__(self, tags, cut):
        every = range(len(tags))
        near = [[b for b in every if b != a and set(tags[a]) & set(tags[b])] for a in every]
        self.tags = sorted({tag for own in tags for tag in own})
        common = lambda a, tag: sum(tag in tags[b] for b in near[a]) if tag in tags[a] else 0
        self.edges = [[common(a, tag) / (len(near[a]) or 1) for tag in self.tags] for a in every]
        self.members = list(every)
        while cut == "client":
            few = [a for a in self.members if len(near[a]) < 2]
            if not few:
                break
            self.members = [a for a in self.members if a not in few]
            near = [[b for b in own if a in self.members and b in self.members]
                    for a, own in enumerate(near)]
        self.near = near

    def share(self, a):
        return 1.0 / max(1, len(self.near[a]))

    def mean(self, a, values):
        out = zeros(len(values[a]), len(values[a][0]))
        for b in self.near[a]:
            out = plus(out, values[b], self.share(a))
        return out

    def spread(self, a, values):
        out = zeros(len(values[a]), len(values[a][0]))
        for b in self.near[a]:
            out = plus(out, values[b], self.share(b))
        return out


# The network.

def first_weights(job, tags, arrays, seed):
    """The weights of a party with these arrays. It has zeros for the others."""
    stream, out = Stream(seed), []
    for array, (rows, columns) in enumerate(job.sizes(tags)):
        own = zeros(rows, columns)
        if array in arrays and array not in (B, C, P):
            most = 1 / math.sqrt(rows)
            own = [[most * (2 * ((number(stream.read(8)) >> 11) * 2.0**-53) - 1)
                    for _ in range(columns)] for _ in range(rows)]
        out.append(own)
    return out


class Adam:
    """Weights of a party, with moments and powers of decays."""

    def __init__(self, count):
        self.moments, self.powers = [[0.0] * count, [0.0] * count], [1.0, 1.0]

    def step(self, rate, weights, slopes):
        self.powers = [self.powers[0] * 0.9, self.powers[1] * 0.999]
        (a, v), out = self.moments, []
        for i, (weight, slope) in enumerate(zip(weights, slopes, strict=True)):
            a[i] = 0.9 * a[i] + (1 - 0.9) * slope
            v[i] = 0.999 * v[i] + (1 - 0.999) * (slope * slope)
            mean, square = a[i] / (1 - self.powers[0]), v[i] / (1 - self.powers[1])
            out.append(weight - rate * mean / (math.sqrt(square) + 1e-8))
        return out


class Learner:
    """The arrays that a party has, and Adam for them."""

    def __init__(self, job, tags, arrays, seed):
        self.job, self.arrays, self.steps = job, arrays, 0
        self.weights = first_weights(job, tags, arrays, seed)
        self.adam = Adam(len(self.flat()))

    def flat(self):
        return flat(self.weights[array] for array in self.arrays)

    def set(self, values):
        values = iter(values)
        for array in self.arrays:
            self.weights[array] = [[next(values) for _ in row] for row in self.weights[array]]

    def step(self, slopes):
        self.set(self.adam.step(self.job.rate, self.flat(), slopes))
        self.steps += 1


class Node:
    """The network at one client. `terms` are those of S that depend on embeddings."""

    def __init__(self, weights, edges, terms):
        self.weights, self.edges = weights, [edges]
        self.sum = with_line(terms, self.line(W3, B))
        self.gained = positive(self.sum)

    def line(self, of_edges, bias):
        return plus(self.weights[bias], product(self.edges, self.weights[of_edges]))[0]

    def forward(self, mean):
        """Q O."""
        w, self.mean = self.weights, mean
        second = plus(product(self.gained, w[V1]), product(mean, w[V2]))
        self.second = with_line(second, self.line(V3, C))
        self.out = positive(self.second)
        return product(self.out, w[O])

    def slopes(self, of_logits):
        """The slopes of Z."""
        return where_positive(product(of_logits, turned(self.weights[O])), self.second)

    def back(self, own, spread):
        """The slopes of S."""
        w = self.weights
        both = plus(product(own, turned(w[V1])), product(spread, turned(w[V2])))
        return where_positive(both, self.sum)

    def weight_slopes(self, first, second, of_logits):
        """Its part of the slopes of all arrays but the first two."""
        of_edges = lambda slopes: product(turned(self.edges), column_sums(slopes))
        return [of_edges(first), column_sums(first), product(turned(self.gained), second),
                product(turned(self.mean), second), of_edges(second), column_sums(second),
                product(turned(self.out), of_logits), column_sums(of_logits)]


def own_terms(weights, own, mean):
    return plus(product(own, weights[W1]), product(mean, weights[W2]))


def loss_of(logits, wanted):
    """The mean cross entropy, and the slopes of the logits."""
    shares, whole = softmax(logits), 0.0
    for p, t in zip(flat([shares]), flat([wanted]), strict=True):
        whole += -t * log(max(p, 2.0**-1022))
    return whole / len(logits), plus(shares, wanted, -1.0)


class Whole:
    """The network at a party that has the terms of all clients."""

    def __init__(self, weights, graph, terms):
        self.weights, self.graph = weights, graph
        self.nodes = [Node(weights, graph.edges[m], own) for m, own in enumerate(terms)]

    def logits(self):
        gained, share = [node.gained for node in self.nodes], 1.0 / len(self.graph.members)
        out = total(scaled(self.nodes[m].forward(self.graph.mean(m, gained)), share)
                    for m in self.graph.members)
        return with_line(out, self.weights[P][0])

    def step(self, wanted):
        """The loss, the slopes of S of each member, and the slopes of all arrays but the first
        two."""
        loss, of_logits = loss_of(self.logits(), wanted)
        size, members = (len(wanted), len(self.weights[O])), self.graph.members
        second = [node.slopes(of_logits) if m in members else zeros(*size)
                  for m, node in enumerate(self.nodes)]
        first = [zeros(*size) for _ in self.nodes]
        parts = []
        for m in members:
            node = self.nodes[m]
            first[m] = node.back(second[m], self.graph.spread(m, second))
            parts.append(node.weight_slopes(first[m], second[m], of_logits))
        return loss, first, list(map(total, zip(*parts)))


def slope_factor(groups, members):
    return 1.0 / (groups * len(members))


def first_slopes(graph, own, mean, first):
    """The slopes of W₁ and W₂, from the embeddings of all clients."""
    return [total(product(turned(of[m]), first[m]) for m in graph.members) for of in (own, mean)]


# Checks.

def clusters_case(case):
    made = clusters(case["labels"], case["classes"], case["size"], case["clustering"],
                    unhex(case["seed"]))
    yield "clusters", made, case["clusters"]
    yield "targets", write_rows(targets(case["labels"], case["classes"], made)), case["targets"]


def graph_case(case):
    tags = [list(map(unhex, own)) for own in case["tags"]]
    yield "order of tags", all(own == sorted(set(own)) for own in tags), True
    for cut, end in (("server", ""), ("client", "_in")):
        graph = Graph(tags, cut)
        yield "neighbours" + end, graph.near, case["neighbours" + end]
        yield "edges" + end, write_rows(graph.edges), case["edges" + end]
    yield "members", graph.members, case["members"]


def network_case(case):
    job = Job(case["job"])
    yield "digest of the job", job.digest().hex(), case["job"]["digest"]
    yield "context", job.context(unhex(case["session"])).hex(), case["context"]
    graph = Graph([list(map(unhex, own)) for own in case["tags"]], job.cut)
    groups = clusters(case["labels"], job.classes, job.cluster, job.clustering,
                      unhex(case["cluster_seed"]))
    yield "clusters", groups, case["clusters"]
    own = [means(read_rows(rows), groups) for rows in case["embeddings"]]
    of_neighbours = lambda rows: [graph.mean(m, rows) for m in range(job.clients)]
    mean, wanted = of_neighbours(own), targets(case["labels"], job.classes, groups)
    learner = Learner(job, len(graph.tags), ARRAYS, bytes(32))
    for arrays, seed in ((job.of_clients, "client_seed"), (job.of_server, "server_seed")):
        first = first_weights(job, len(graph.tags), arrays, unhex(case[seed]))
        for array in arrays:
            learner.weights[array] = first[array]
    yield "first weights", list(map(write_rows, learner.weights)), case["weights"]
    terms = lambda own, mean: [own_terms(learner.weights, *both) for both in zip(own, mean)]
    yield "number of steps", len(case["steps"]), job.steps
    for at, held in enumerate(case["steps"]):
        whole = Whole(learner.weights, graph, terms(own, mean))
        sums = [write_rows(whole.nodes[m].sum) for m in graph.members]
        yield f"sums of step {at}", sums, held["sums"]
        loss, first, others = whole.step(wanted)
        yield f"loss of step {at}", hexed(loss), held["loss"]
        slopes = scaled([flat([*first_slopes(graph, own, mean, first), *others])],
                        slope_factor(len(groups), graph.members))[0]
        yield f"slopes of step {at}", same(slopes, held["slopes"]), True
        learner.step(slopes)
        yield f"weights after step {at}", same(learner.flat(), held["weights"]), True
    queries = list(map(read_rows, case["queries"]))
    predicted = softmax(Whole(learner.weights, graph, terms(queries,
                                                            of_neighbours(queries))).logits())
    yield "predictions", write_rows(predicted), case["predicted"]


def same(made, held):
    """Whether numbers are equal. The sign of 0 does not count."""
    return made == [double(text) for text in held]


def none_refused(vectors, entry):
    raise ValueError(f"nothing is refused: {entry}")
    yield vectors


CHECKS = {
    "clusters": (clusters_case, none_refused),
    "client-graph": (graph_case, none_refused),
    "graph-network": (network_case, none_refused),
}
