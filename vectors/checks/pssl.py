"""A graph between pairs of clients: products, circuits, edges and propagation. See
docs/spec/pssl.md."""
import math

from .garble import Builder, constant, index_bits, inverse
from .jobs import context, digest, fields_of
from .libm import exp
from .pairs import packed, unpacked
from .primitives import double, hexed, number, unhex

ATTEMPTS, PER_EDGE = 6, 4


class Job:
    """The parameters of a job."""

    def __init__(self, held):
        self.fields = fields_of(held)
        for name in ("features", "scale", "classes", "clusters", "asked", "d_min", "d_max",
                     "epsilon", "alpha", "reveal", "rounds", "local_start", "neighbours"):
            setattr(self, name, self.fields[name])
        self.single, self.least_clients = self.fields["allow_single"], self.fields["min_clients"]
        self.iterations = self.fields["iterations"]
        self.width = width_of(self.scale, self.features)

    def digest(self):
        return digest("pssl", self.fields)

    def thresholds(self):
        """The least and the greatest square, then those of the quarters."""
        most = 2**self.width - 1
        scale = float(self.scale)
        least = lambda d: min(math.ceil(d * d * scale * scale), most)
        quarter = (self.d_max - self.d_min) / 4
        greatest = min(math.floor(self.d_max * self.d_max * scale * scale), most)
        return [least(self.d_min), greatest,
                *(least(self.d_min + k * quarter) for k in (1.0, 2.0, 3.0))]

    def told(self, square):
        """What an edge with this square tells, or None."""
        least, most, *quarters = self.thresholds()
        if not least <= square <= most:
            return None
        return {"bucket": sum(square >= quarter for quarter in quarters),
                "distance": square, "accept": 0}[self.reveal]

    def weight(self, told):
        reach = self.d_max - self.d_min
        if self.reveal == "distance":
            return exp(-(told / float(self.scale * self.scale)) / self.epsilon)
        d = self.d_min + (reach * (told + 0.5) / 4 if self.reveal == "bucket" else reach / 2)
        return exp(-(d * d) / self.epsilon)


def width_of(scale, features):
    return (scale * scale * features).bit_length()


def square(a, b):
    return sum((x - y)**2 for x, y in zip(a, b, strict=True))


# Products.

def product_case(case):
    features, width = case["features"], width_of(case["scale"], case["features"])
    bits = min(case["scale"].bit_length(), width - 1)
    yield "width", width, case["width"]
    yield "bits", case["scale"].bit_length(), case["bits"]
    rows = {side: [None if row is None else unhex(row) for row in case[side]]
            for side in ("garbler", "evaluator")}
    values = lambda row: row or bytes(features)
    wanted = [values(row)[v] >> b & 1
              for row in rows["evaluator"] for b in range(bits) for v in range(features)]
    total = len(wanted)
    random = number(unhex(case["random"]))
    choices = sum((bit ^ random >> t & 1) << t for t, bit in enumerate(wanted))
    length = 8 * -(-total // 64)
    yield "choices", choices.to_bytes(length, "little").hex(), case["choices"]
    zeros, ones = case["keys"]
    offers, first, second, t = b"", [], [], 0
    for own, other in zip(rows["garbler"], rows["evaluator"], strict=True):
        mine = theirs = 0
        for b in range(bits):
            width_b, made = width - 1 - b, []
            for v in range(features):
                pair = zeros[t], ones[t]
                held = pair[random >> t & 1]
                zero, one = pair if not choices >> t & 1 else pair[::-1]
                made.append((zero - one + values(own)[v]) % 2**width_b)
                mine -= zero << b
                theirs += held + (made[-1] if wanted[t] else 0) << b
                t += 1
            offers += packed(made, width_b)
            if unpacked(packed(made, width_b), width_b, features) != made:
                yield "packing", False, True
        first.append(mine % 2**(width - 1))
        second.append(theirs % 2**(width - 1))
        product = sum(x * y for x, y in zip(values(own), values(other), strict=True))
        yield "sum of shares", (first[-1] + second[-1]) % 2**(width - 1), product % 2**(width - 1)
    yield "offers", offers.hex(), case["offers"]
    yield "garbler's shares", first, case["garbler_shares"]
    yield "evaluator's shares", second, case["evaluator_shares"]


# Circuits.

def sums(builder, count, width):
    """Sums of both parties' words."""
    numbers = lambda side, i: [side(bit) for bit in range(i * width, (i + 1) * width)]
    return [builder.add(numbers(builder.garbler, i), numbers(builder.evaluator, i))
            for i in range(count)]


def closest_circuit(job):
    builder = Builder(job.clusters * job.width, job.clusters * job.width)
    index, _ = builder.argmin(sums(builder, job.clusters, job.width))
    return builder.finish(index[:index_bits(job.clusters)])


def edge_circuit(job):
    width = job.width
    builder = Builder(width + 1, width + 1)
    [d2] = sums(builder, 1, width)
    least, most, *quarters = job.thresholds()
    both = builder.and_(builder.garbler(width), builder.evaluator(width))
    low = builder.less(d2, constant(least, width))
    high = builder.less(constant(most, width), d2)
    accept = builder.and_(builder.and_(both, inverse(low)), inverse(high))
    told = []
    if job.reveal == "distance":
        told = d2
    elif job.reveal == "bucket":
        above = [inverse(builder.less(d2, constant(quarter, width))) for quarter in quarters]
        told = [builder.xor(builder.xor(above[0], above[1]), above[2]), above[1]]
    return builder.finish([accept, *(builder.and_(accept, bit) for bit in told)])


def bits_of(words, width, *flags):
    return [word >> i & 1 for word in words for i in range(width)] + list(flags)


def circuits_case(case):
    job = Job(case["job"])
    yield "digest of the job", job.digest().hex(), case["job"]["digest"]
    yield "thresholds", job.thresholds(), case["thresholds"]
    closest, edge = closest_circuit(job), edge_circuit(job)
    for name, circuit in (("closest", closest), ("edge", edge)):
        yield name, [circuit.ands, circuit.digest.hex()], case[name]
    for search in case["clusters"]:
        own, other = search["garbler"], search["evaluator"]
        squares = [(a + b) % 2**job.width for a, b in zip(own, other, strict=True)]
        yield "closest cluster", squares.index(min(squares)), search["closest"]
        found = closest.run(bits_of(own, job.width), bits_of(other, job.width))
        yield "closest cluster by the circuit", found, search["closest"]
    for one in case["comparisons"]:
        d2 = (one["garbler"] + one["evaluator"]) % 2**job.width
        told = job.told(d2) if all(one["real"]) else None
        yield f"edge of {d2}", told, one["told"]
        weight = None if told is None else hexed(job.weight(told))
        yield f"weight of {d2}", weight, one["weight"]
        output = edge.run(*(bits_of([one[side]], job.width, real)
                            for side, real in zip(("garbler", "evaluator"), one["real"])))
        yield f"output of {d2}", output & 1 and output >> 1, 0 if told is None else told
        yield f"acceptance of {d2}", bool(output & 1), told is not None


# Runs.

class End:
    """One end of a pair."""

    def __init__(self, job, client):
        self.job = job
        self.rows, self.members = list(map(unhex, client["rows"])), client["members"]
        self.used, self.edges = set(), []

    def fits(self, clusters, places, rows, missing):
        """Whether these rows may be compared: at each place as many as are missing, rows of the
        place's cluster without an edge, each once, and as many as there are; the rest are
        dummies."""
        real = [row for row in rows if row >= 0]
        if len(set(real)) != len(real) or self.used & set(real):
            return False
        if places != [place for place, count in enumerate(missing) for _ in range(count)]:
            return False
        at = {place: [row for p, row in zip(places, rows) if p == place]
              for place in range(len(missing))}
        for place, own in at.items():
            if not set(own) - {-1} <= set(self.members[clusters[place]]):
                return False
        for cluster in set(clusters):
            of = [place for place, other in enumerate(clusters) if other == cluster]
            free = len(set(self.members[cluster]) - self.used)
            dealt = sum(len(at[place]) - at[place].count(-1) for place in of)
            if dealt != min(free, sum(missing[place] for place in of)):
                return False
        return True


def pair_differences(job, ends, clients, pair):
    for nth, direction in enumerate(pair["directions"]):
        proposer, other = ends if nth == 0 else ends[::-1]
        centres = [list(map(unhex, clients[who]["centres"]))
                   for who in (pair["clients"] if nth == 0 else pair["clients"][::-1])]
        order = direction["order"]
        yield "order", sorted(order), list(range(job.clusters))
        squares = [[square(centres[0][own], centre) for centre in centres[1]] for own in order]
        closest = [row.index(min(row)) for row in squares]
        yield "closest clusters", closest, direction["closest"]
        accepted, compared = [0] * job.clusters, [0] * job.clusters
        for attempt in direction["attempts"]:
            missing = [min(job.asked - a, PER_EDGE * job.asked - c)
                       for a, c in zip(accepted, compared)]
            places, own, theirs = (attempt[n] for n in ("places", "proposed", "answered"))
            yield "proposals", proposer.fits(order, places, own, missing), True
            yield "answers", other.fits(closest, places, theirs, missing), True
            told = []
            for place, a, b in zip(places, own, theirs, strict=True):
                is_real = a >= 0 and b >= 0
                tells = job.told(square(proposer.rows[a], other.rows[b])) if is_real else None
                told.append(-1 if tells is None else tells)
                compared[place] += 1
                if tells is not None:
                    accepted[place] += 1
                    for end, row in ((proposer, a), (other, b)):
                        end.used.add(row)
                        end.edges.append((row, job.weight(tells)))
            yield "what edges tell", told, attempt["told"]
        count = len(direction["attempts"])
        left = [min(job.asked - a, PER_EDGE * job.asked - c) for a, c in zip(accepted, compared)]
        yield "number of attempts", count == ATTEMPTS or not any(left), True


def local_graph(job, rows):
    near = []
    for a, row in enumerate(rows):
        others = sorted((square(row, other), b) for b, other in enumerate(rows) if b != a)
        near.append({b for _, b in others[:job.neighbours]})
    unit = float(job.scale * job.scale)
    weigh = lambda a, b: exp(-(square(rows[a], rows[b]) / unit) / job.epsilon)
    return [[(b, weigh(a, b)) for b in sorted(near[a]) if a in near[b]]
            for a in range(len(rows))]


def step(job, graph, labels, scores, sums_, outside):
    out = []
    for row, neighbours in enumerate(graph):
        mean, degree = list(sums_[row]), outside[row]
        for other, weight in neighbours:
            degree += weight
            mean = [m + weight * s for m, s in zip(mean, scores[other], strict=True)]
        share = job.alpha / degree if degree > 0 else 0.0
        out.append([share * m + (1 - job.alpha) * y
                    for m, y in zip(mean, labels[row], strict=True)])
    return out


def near_enough(made, held):
    return all(abs(a - b) < 1e-12 for a, b in zip(made, held, strict=True))


def pairwise_case(case):
    job, clients = Job(case["job"]), case["clients"]
    yield "digest of the job", job.digest().hex(), case["job"]["digest"]
    yield "context", context(unhex(case["session"]), job.digest()).hex(), case["context"]
    ends = {}
    for pair in case["pairs"]:
        a, b = pair["clients"]
        own = [End(job, clients[who]) for who in (a, b)]
        yield from pair_differences(job, own, clients, pair)
        ends[a, b], ends[b, a] = own[0].edges, own[1].edges
    rows = [list(map(unhex, client["rows"])) for client in clients]
    graphs = [local_graph(job, own) for own in rows]
    labels = [[[float(c == label) for c in range(job.classes)] for label in client["labels"]]
              for client in clients]
    partners = [[[] for _ in own] for own in rows]
    for (a, b), edges in sorted(ends.items()):
        for (row, weight), (other, _) in zip(edges, ends[b, a], strict=True):
            partners[a][row].append((b, other, weight))
    fewest = 1 if job.single else 2
    partners = [[own if len(own) >= fewest else [] for own in of] for of in partners]
    outside = [[sum(weight for _, _, weight in own) for own in of] for of in partners]
    nothing = [[[0.0] * job.classes for _ in own] for own in rows]
    scores = labels
    if job.local_start:
        for _ in range(job.rounds):
            scores = [step(job, g, y, s, n, [0.0] * len(y))
                      for g, y, s, n in zip(graphs, labels, scores, nothing)]
    for _ in range(job.rounds):
        totals = [[[sum(weight * scores[b][other][c] for b, other, weight in own)
                    for c in range(job.classes)] for own in of] for of in partners]
        scores = [step(job, *arguments)
                  for arguments in zip(graphs, labels, scores, totals, outside)]
    for client, (made, held) in enumerate(zip(scores, clients, strict=True)):
        flat = [score for row in made for score in row]
        due = [double(score) for row in held["scores"] for score in row]
        yield f"scores of client {client}", near_enough(flat, due), True


def none_refused(vectors, entry):
    raise ValueError(f"nothing is refused: {entry}")
    yield vectors


CHECKS = {
    "product": (product_case, none_refused),
    "edge-circuit": (circuits_case, none_refused),
    "pairwise": (pairwise_case, none_refused),
}
