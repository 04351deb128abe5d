"""Co-training: layouts of votes, quorums, noise, whole jobs with every frame, and the refusals. See
docs/spec/cotraining.md."""
import hashlib
import itertools
import math
import struct

from . import garble
from .garble import GARBLING, Builder, constant, index_bits
from .jobs import context, digest, fields_of
from .labels import SETUP, Group, depth_differences, frame_differences
from .labels_refused import SetupChecks
from .libm import exp
from .messages import Reader
from .pairs import packed, unpacked
from .primitives import (SERVER, Refused, Stream, chacha20, derive, double, hexed, ids,
                         need, number, pieces, unhex)
from .reasons import blame, refused_by
from .sums import UNMASKING, Sum

CONSENSUS, VOTES, SLICES = 20, 21, 22
EXCHANGE, OVER = range(2)
MILLION, MOST_CLIENTS = 10**6, 2**16 - 1
FIELD = 4


# Votes.

def rates(noise, classes):
    """The probability that the class of a vote keeps it, and that another class gets one."""
    epsilon, sensitivity = double(noise["epsilon"]), double(noise["sensitivity"])
    if noise["kind"] == "krr":
        kept = 1.0 / (1.0 + (classes - 1.0) * exp(-epsilon))
        return kept, (1.0 - kept) / (classes - 1.0)
    if noise["kind"] == "xor":
        kept = 1.0 / (1.0 + exp(-epsilon / sensitivity))
        return kept, 1.0 - kept
    return None


def needed(quorum, noise, classes, contributors):
    """The votes that a class needs."""
    if not quorum:
        return 0
    found = rates(noise, classes)
    if found is None:
        return -(-contributors * quorum // MILLION)
    kept, turned = found
    share = quorum / MILLION
    votes = share * contributors * (kept - turned) + contributors * turned
    return max(0, math.ceil(votes - 1e-9))


def needs_all(quorum, noise, classes, contributors):
    """Whether a consensus tells every vote."""
    return (noise["kind"] == "none" and quorum > 0 and
            needed(quorum, noise, classes, contributors) == contributors)


def ballots(noise, votes, classes, seed):
    """For each row one bit for each class."""
    stream, found = Stream(seed), rates(noise, classes)
    threshold = found and min(int(found[0] * 2.0**64), 2**64 - 1)
    word = lambda: number(stream.read(8))
    for vote in votes:
        if noise["kind"] == "xor":
            yield [(class_ == vote) == (word() < threshold) for class_ in range(classes)]
            continue
        if noise["kind"] == "krr":
            keep, other = word(), word()
            vote += 0 if keep < threshold else 1 + (other * (classes - 1) >> 64)
        yield [class_ == vote % classes for class_ in range(classes)]


def winner(counts, least):
    """The lowest class with the most votes; −1 if these are too few."""
    best = counts.index(max(counts))
    return best if counts[best] >= least else -1


def packed_labels(labels, classes):
    return packed([classes if label < 0 else label for label in labels], index_bits(classes + 1))


class Layout:
    """Where the counter of each class of each row is."""

    def __init__(self, rows, classes, clients):
        self.rows, self.classes = rows, classes
        self.bits = index_bits(clients + 1)
        self.counters = 64 // self.bits
        self.block_rows = max(1, self.counters // classes)
        self.block_words = -(-classes // self.counters)
        self.blocks = -(-rows // self.block_rows)
        self.words = self.blocks * self.block_words
        all_ = self.block_rows * classes
        self.used = [min(self.counters, all_ - word * self.counters) * self.bits
                     for word in range(self.block_words)]

    def place(self, row, class_):
        """The word of a counter, and its lowest bit."""
        at = row % self.block_rows * self.classes + class_
        word = row // self.block_rows * self.block_words + at // self.counters
        return word, at % self.counters * self.bits

    def encode(self, rows):
        out = [0] * self.words
        for row, flags in enumerate(rows):
            for class_, flag in enumerate(flags):
                word, bit = self.place(row, class_)
                out[word] |= flag << bit
        return out

    def labels(self, words, least):
        def counter(row, class_):
            word, bit = self.place(row, class_)
            return words[word] >> bit & 2**self.bits - 1
        counts = lambda row: [counter(row, class_) for class_ in range(self.classes)]
        return [winner(counts(row), least) for row in range(self.rows)]

    def circuit(self, least):
        """The labels of a block: the garbler's and the evaluator's words, word by word, are added
        up."""
        c, first, counters, outputs = Builder(sum(self.used), sum(self.used)), 0, [], []
        for used in self.used:
            bits = range(first, first + used)
            total = c.add([c.garbler(i) for i in bits], [c.evaluator(i) for i in bits])
            counters, first = counters + pieces(total, self.bits), bits.stop
        width = index_bits(self.classes + 1)
        for own in pieces(counters, self.classes):
            label, most = c.argmax(own)
            label = label + [False] * (width - len(label))
            if least:
                # Counters cannot hold a greater number.
                few = least >> self.bits > 0 or c.less(most, constant(least, self.bits))
                label = c.select(few, constant(self.classes, width), label)
            outputs += label
        return c.finish(outputs)

    def inputs(self, words):
        """The bits of each block."""
        return [[word >> i & 1 for word, used in zip(block, self.used) for i in range(used)]
                for block in pieces(words, self.block_words)]

    def decode(self, block, output):
        """The rows of a block, and their labels."""
        first, width = block * self.block_rows, index_bits(self.classes + 1)
        for i, row in enumerate(range(first, min(self.rows, first + self.block_rows))):
            value = output >> i * width & 2**width - 1
            yield row, value if value < self.classes else -1


def words_of(data):
    return list(map(number, pieces(data, 8)))


def ballots_case(case):
    layout = Layout(case["rows"], case["classes"], case["clients"])
    for name in ("bits", "blocks", "block_words", "words"):
        yield name, getattr(layout, name), case[name]
    none = {"kind": "none", "epsilon": hexed(0.0), "sensitivity": hexed(0.0)}
    rows = list(ballots(none, case["votes"], case["classes"], bytes(32)))
    words = layout.encode(rows)
    yield "encoded", struct.pack(f"<{len(words)}Q", *words).hex(), case["encoded"]
    labels = layout.labels(words, case["needed"])
    yield "labels", labels, case["labels"]
    yield "written", packed_labels(labels, case["classes"]).hex(), case["written"]
    circuit = layout.circuit(case["needed"])
    yield "inputs", list(circuit.inputs), [case["inputs"]] * 2
    yield "outputs", len(circuit.outputs), case["outputs"]
    yield "AND gates", circuit.ands, case["ands"]
    yield "digest", circuit.digest.hex(), case["digest"]
    found = {}
    for block, bits in enumerate(layout.inputs(words)):
        found |= dict(layout.decode(block, circuit.run([0] * len(bits), bits)))
    yield "labels by the circuit", [found[row] for row in range(layout.rows)], case["labels"]


def quorum_case(case):
    parameters = case["quorum"], case["noise"], case["classes"]
    found = rates(*parameters[1:])
    yield "rates", found and list(map(hexed, found)), case["rates"]
    for count, held in enumerate(case["needed"], 1):
        made = [needed(*parameters, count), needs_all(*parameters, count)]
        yield f"of {count}", made, held


def noise_case(case):
    made = ballots(case["noise"], case["votes"], case["classes"], unhex(case["seed"]))
    made = [[class_ for class_, flag in enumerate(row) if flag] for row in made]
    yield "ballots", made, case["ballots"]


# Jobs.

class Job:
    """The parameters, and the clients."""

    def __init__(self, case):
        job, self.clients = case["job"], case["clients"]
        fields = fields_of(job)
        for name in ("rows", "features", "classes", "votes", "exchanges", "min_clients", "suite"):
            setattr(self, name, fields[name])
        self.quorum = fields["quorum"] or 0
        self.noise = {"kind": fields["noise"]} | {
            name: hexed(fields[name] or 0.0) for name in ("epsilon", "sensitivity")}
        self.malicious, self.values = fields["malicious_server"], unhex(case["values"])
        self.members = list(range(len(self.clients)))
        self.identities = [unhex(client["identity"] or "") or None for client in self.clients]
        self.layout = Layout(self.rows, self.classes, len(self.clients))
        self.public = hashlib.sha256(
            b"undertone/v1/public rows" + struct.pack("<QQ", self.features, len(self.values) // 4) +
            self.values).digest()
        self.digest = digest("cotrain", fields)

    def needed(self, contributors):
        return needed(self.quorum, self.noise, self.classes, contributors)

    def needs_all(self, contributors):
        return needs_all(self.quorum, self.noise, self.classes, contributors)

    def learned(self, client, labels):
        """The rows and labels that a learner gets, under a consensus or none."""
        own = self.clients[client]
        rows = pieces(self.values, 4 * self.features)
        labelled = [(row, label) for row, label in zip(rows, labels or []) if label >= 0]
        values = unhex(own["values"]) + b"".join(row for row, _ in labelled)
        return {"client": client, "values": values.hex(),
                "labels": own["labels"] + [label for _, label in labelled]}


class Session:
    """What all sessions have. `begun` is the number of the last exchange begun, `before` the last
    consensus."""

    def __init__(self, job, held, kind, begun, before):
        self.job, self.kind, self.begun, self.before = job, kind, begun, before
        self.session, self.server = unhex(held["session"]), unhex(held["server_seed"])
        self.seeds, self.members = list(map(unhex, held["seeds"])), job.members
        self.opening = bytes([kind]) + ids(begun, len(self.members), *self.members)
        self.opening += bytes([before is not None])
        if before is not None:
            self.opening += packed_labels(before, job.classes)
        self.lost, self.contributors, self.labels = 0, [], None
        self.out = {}
        for client in self.members:
            self.back(client, CONSENSUS, "opening", self.opening)

    def to(self, client, phase, kind, data):
        self.out.setdefault((client, SERVER), []).append((phase, kind, data))

    def back(self, client, phase, kind, data):
        self.out.setdefault((SERVER, client), []).append((phase, kind, data))


class Exchange(Session):
    def __init__(self, job, held, begun, before):
        super().__init__(job, held, EXCHANGE, begun, before)
        dropped = held["dropped"] or {"client": None, "frames": None}
        self.dropped, self.limit = dropped["client"], dropped["frames"]
        self.context = context(self.session, job.digest, self.opening)
        self.ballots = [
            list(ballots(job.noise, job.clients[client]["votes"][begun - 1], job.classes,
                         self.derive(client, "vote noise", client)))
            for client in self.members
        ]
        self.plans, self.runs, self.slice_count = [], {}, 0
        for client in self.members:
            clear = self.clear(client) if job.votes == "clear" else b""
            self.to(client, VOTES, "votes", clear)
        words = list(map(job.layout.encode, self.ballots))
        if job.votes == "winners":
            self.winners(words)
            return
        self.contributors = self.members
        total = [sum(column) for column in zip(*words)]
        if job.votes == "counts":
            made = self.sum(0, self.members, words, [self.derive(client, "vote sum", client)
                                                     for client in self.members])
            self.exchange_sum(made, self.members)
            total = made.total()
        self.finish(job.layout.labels([word % 2**64 for word in total],
                                      job.needed(len(self.members))), self.members)

    def derive(self, client, purpose, *numbers):
        return derive(self.seeds[client], self.context, purpose, ids(*numbers))

    def clear(self, client):
        if self.job.noise["kind"] == "xor":
            return packed([bit for row in self.ballots[client] for bit in row], 1)
        return packed([row.index(True) for row in self.ballots[client]],
                      index_bits(self.job.classes))

    def clear_votes(self):
        """Bits and number of the values of clear votes."""
        if self.job.noise["kind"] == "xor":
            return 1, self.job.rows * self.job.classes
        return index_bits(self.job.classes), self.job.rows

    def is_sent(self, client, ahead=0):
        """Whether the client sends its next message, or that so many messages later."""
        return client != self.dropped or len(self.out[client, SERVER]) + ahead < self.limit

    def sum(self, round_, members, words, seeds, context=None):
        job = self.job
        identities = [job.identities[client] for client in members]
        sharing = [self.is_sent(client, 1) for client in members]
        contributing = [self.is_sent(client, 2) for client in members]
        return Sum(context or self.context, round_, job.suite, 8, 0, (0, len(words[0])), seeds,
                   [(0, 0)] * len(members), words, job.min_clients, False, job.malicious, None,
                   identities, sharing, contributing, numbers=members)

    def exchange_sum(self, made, members):
        for place, client in enumerate(members):
            for phase, data in made.to_server(place):
                self.to(client, phase, "sum", data)
            for phase, data in made.to_client(place):
                self.back(client, phase, "sum", data)

    def finish(self, labels, present):
        self.labels = labels
        for client in present:
            self.back(client, CONSENSUS, "consensus", packed_labels(labels, self.job.classes))

    # Winners.

    def blocks(self, slice_):
        return range(slice_, self.job.layout.blocks, self.slice_count)

    def mask(self, voter, helper, slice_, attempt):
        context = ids(voter, helper, slice_, attempt)
        if voter == helper:
            secret = self.derive(voter, "own masks", voter)
        else:
            secret = derive(self.group.pair(voter, helper), self.context, "exporter")
        seed = derive(secret, self.context, "vote mask", context)
        count = len(self.blocks(slice_)) * self.job.layout.block_words
        return words_of(chacha20(seed, 8 * count))

    def slice_words(self, words, slice_):
        width = self.job.layout.block_words
        return [word for block in self.blocks(slice_)
                for word in words[block * width:(block + 1) * width]]

    def winners(self, words):
        job, context = self.job, self.context
        seeds = [self.derive(client, "pairs", client) for client in self.members]
        self.group = group = Group(context, seeds, derive(self.server, context, "pairs"),
                                   job.identities, True, job.min_clients)
        for client in self.members:
            self.to(client, SETUP, "hello", group.hellos[client])
            self.to(client, SETUP, "contributions", group.contributions_of(client))
            self.back(client, SETUP, "roster", group.roster())
            self.back(client, SETUP, "contributions", group.admission(client))
        self.slice_count = min(len(self.members), job.layout.blocks)
        present, ready = self.members, []
        plan = list(zip(range(self.slice_count), present))
        for attempt in itertools.count():
            self.plans.append(plan)
            for client in present:
                self.back(client, SLICES, "plan", self.plan_message(plan))
            total, contributors = self.masked_sum(plan, attempt, present, words)
            if not plan:
                present = contributors
                break
            self.contributors = self.contributors or contributors
            present = [client for client in contributors if self.is_sent(client)]
            for client in contributors:
                self.to(client, SLICES, "ready", b"")
            orphans = []
            for slice_, helper in plan:
                if helper in present:
                    ready.append((helper, slice_, attempt, contributors, total[slice_]))
                else:
                    later = [client for client in present if client > helper]
                    orphans.append((slice_, (later or present)[0]))
            plan = orphans
        labels = [-1] * job.rows
        for helped in sorted(ready, key=lambda helped: helped[:2]):
            for row, label in self.circuits(words, *helped):
                labels[row] = label
        self.finish(labels, present)

    @staticmethod
    def plan_message(plan):
        return ids(len(plan)) + b"".join(ids(*entry) for entry in plan)

    def masked_sum(self, plan, attempt, present, words):
        """The words of each slice that the server gets, and who contributes."""
        own = []
        for client in present:
            pairs = [(word, mask) for slice_, helper in plan
                     for word, mask in zip(self.slice_words(words[client], slice_),
                                           self.mask(client, helper, slice_, attempt), strict=True)]
            own.append([(word - mask) % 2**64 for word, mask in pairs] or [0])
        seeds = [self.derive(client, "vote sum", client, attempt) for client in present]
        made = self.sum(attempt, present, own, seeds, hashlib.sha256(
            b"undertone/v1/co-training plan" + self.context + ids(attempt) +
            self.plan_message(plan)).digest())
        self.exchange_sum(made, present)
        total, out = [word % 2**64 for word in made.total()], {}
        for slice_, _ in plan:
            count = len(self.blocks(slice_)) * self.job.layout.block_words
            out[slice_], total = total[:count], total[count:]
        return out, [client for client, there in zip(present, made.contributors) if there]

    def circuits(self, words, helper, slice_, attempt, contributors, total):
        """The rows of a slice and their labels, by the slice's circuits."""
        job, layout = self.job, self.job.layout
        masks = [self.mask(voter, helper, slice_, attempt) for voter in contributors]
        masks = [sum(column) % 2**64 for column in zip(*masks)]
        least = job.needed(len(contributors))
        run = garble.Run(
            self.context, f"slice {slice_} attempt {attempt}".encode(), (helper, SERVER),
            (self.derive(helper, "garbling", helper, slice_, attempt),
             derive(self.server, self.context, "evaluation", ids(slice_, attempt))),
            FIELD, layout.circuit(least), "evaluator", [layout.inputs(masks), layout.inputs(total)])
        is_lost = not self.is_sent(helper, len(run.forward()) - 1)
        for link, add, messages in (((helper, SERVER), self.to, run.forward()),
                                    ((SERVER, helper), self.back, run.backward())):
            for nth, (_, data) in enumerate(messages):
                self.runs[*link, len(self.out[link])] = run, messages, nth
                add(helper, GARBLING, "circuit", data)
        counted = [sum(words[client][at] for client in contributors)
                   for at in range(layout.words)]
        due = layout.labels(counted, least)
        for block, output in zip(self.blocks(slice_), run.outputs, strict=True):
            for row, label in layout.decode(block, output):
                if label != due[row]:
                    raise ValueError(f"row {row}: the circuit gives {label}, counting {due[row]}")
                self.lost += is_lost
                yield row, -1 if is_lost else label


class Cotraining:
    """A whole job: its sessions."""

    def __init__(self, case):
        self.job, self.sessions, self.is_settled = Job(case), [], False
        begun, labels = 0, None
        for held in case["sessions"]:
            if self.is_settled or begun == self.job.exchanges:
                self.sessions.append(Session(self.job, held, OVER, begun, labels))
                continue
            begun += 1
            session = Exchange(self.job, held, begun, labels)
            self.is_settled, labels = session.labels == labels, session.labels
            self.sessions.append(session)
        self.begun = begun


RUNS = {}


def run_of(case):
    """The run of a case, kept by its identity."""
    held, run = RUNS.get(id(case), (None, None))
    if held is not case:
        run = Cotraining(case)
        RUNS[id(case)] = case, run
    return run


def cotraining_case(case):
    run = run_of(case)
    job = run.job
    yield "digest of the public rows", job.public.hex(), fields_of(case["job"])["public"]
    yield "digest of the job", job.digest.hex(), case["job"]["digest"]
    for at, (session, held) in enumerate(zip(run.sessions, case["sessions"], strict=True)):
        what = f"session {at}: "
        yield what + "labels", session.labels, held["labels"]
        yield what + "contributors", session.contributors, held["contributors"]
        yield what + "lost rows", session.lost, held["lost"]
        learned = [job.learned(client, session.before) for client in session.members]
        yield what + "learned", learned, held["learned"]
        due = dict(session.out)
        if held["dropped"]:
            client, frames = held["dropped"]["client"], held["dropped"]["frames"]
            due[client, SERVER] = due[client, SERVER][:frames]
            # How many messages a dropped client gets depends on when the server learns of it.
            sent = sum(frame["to"] == client for frame in held["frames"])
            due[SERVER, client] = due[SERVER, client][:sent]
        for name, made, held_ in frame_differences(held["frames"], due):
            yield what + name, made, held_
        for name, made, held_ in depth_differences(held["frames"], (UNMASKING, GARBLING)):
            yield what + name, made, held_


# The refusals.

class Checks(SetupChecks):
    """The checks of one session of a job, in which nobody drops out."""

    def __init__(self, run, at):
        self.job, self.session = run.job, run.sessions[at]
        super().__init__(getattr(self.session, "group", None))

    def check_quorum(self, me, contributors, phase):
        """FEDCT-12."""
        need(not self.job.needs_all(contributors), "the quorum is all of them", me, phase)

    def check_opening(self, me, data):
        """FEDCT-1, FEDCT-2, FEDCT-5."""
        job = self.job
        try:
            reader = Reader(data)
            kind, round_ = reader.below(1, 2), reader.number(4)
            count = reader.below(4, MOST_CLIENTS + 1)
            members = [reader.number(4) for _ in range(count)]
            need(members == sorted(set(members)) and SERVER not in members,
                 "not clients in ascending order")
            if reader.below(1, 2):
                width = index_bits(job.classes + 1)
                labels = unpacked(reader.take(-(-job.rows * width // 8)), width, job.rows)
                need(max(labels) <= job.classes, "a label that is no class")
            reader.end()
            need(me in members, "the receiver is not in the set")
            if kind == EXCHANGE:
                need(len(members) >= job.min_clients, "too few clients", me, CONSENSUS, [])
                self.check_quorum(me, len(members), CONSENSUS)
                need(self.session.begun - 1 < round_ <= job.exchanges,
                     "an exchange that is not due")
        except Refused as refusal:
            if refusal.party is not None:
                raise
            raise Refused(str(refusal), me, CONSENSUS, [SERVER]) from None

    def check_votes(self, client, data):
        """FEDCT-3, FEDCT-4."""
        try:
            if self.job.votes != "clear":
                need(not data, "a message that is not empty")
                return
            width, count = self.session.clear_votes()
            due = -(-width * count // 8)
            need(len(data) == due, f"votes of {len(data)} bytes, {due} are due")
            values = unpacked(data, width, count)
            if self.job.noise["kind"] != "xor":
                need(max(values) < self.job.classes, f"a vote for class {max(values)}")
        except Refused as refusal:
            raise Refused(str(refusal), SERVER, VOTES, [client]) from None

    def check_contributors(self, me, data):
        """FEDCT-8 of the first sum: its contributors are in, according to an admission."""
        there = [client for client, flag in zip(self.session.members, data) if flag]
        need(set(self.session.contributors) <= set(there), "contributors that were not in", me,
             UNMASKING, [SERVER])

    def check_plan(self, me, nth, data):
        """FEDCT-6, FEDCT-7."""
        session = self.session
        try:
            reader, plan = Reader(data), []
            for _ in range(reader.below(4, session.slice_count + 1)):
                plan.append((reader.below(4, session.slice_count), reader.number(4)))
            reader.end()
            slices = [slice_ for slice_, _ in plan]
            need(slices == sorted(set(slices)), "slices out of order")
            before = dict(session.plans[nth - 1]) if nth else None
            for slice_, helper in plan:
                able = helper in session.members
                if before is not None:
                    able = able and before.get(slice_) not in (None, helper, me)
                need(able, "a plan of other slices or helpers")
            need(nth or plan == list(zip(range(session.slice_count), session.members)),
                 "a plan of other slices or helpers")
        except Refused as refusal:
            raise Refused(str(refusal), me, SLICES, [SERVER]) from None

    def check_ready(self, client, data):
        """FEDCT-9."""
        need(not data, "a message that is not empty", SERVER, SLICES, [client])

    def check_consensus(self, me, data):
        """FEDCT-10."""
        job = self.job
        width = index_bits(job.classes + 1)
        due = -(-job.rows * width // 8)
        need(len(data) == due, f"a consensus of {len(data)} bytes, {due} are due", me, CONSENSUS,
             [SERVER])
        need(max(unpacked(data, width, job.rows)) <= job.classes,
             "a consensus with a label that is no class", me, CONSENSUS, [SERVER])

    def check(self, from_, to, nth, kind, data):
        client = min(from_, to)
        if kind == "circuit":
            run, messages, at = self.session.runs[from_, to, nth]
            return run.check_message(messages, at, to, from_, data)
        if kind == "plan":
            sent = self.session.out[from_, to][:nth]
            return self.check_plan(client, sum(other == kind for _, other, _ in sent), data)
        checks = {"opening": self.check_opening, "votes": self.check_votes,
                  "ready": self.check_ready, "consensus": self.check_consensus}
        if kind in checks:
            return checks[kind](client, data)
        self.check_setup(from_, to, kind, data)
        if kind == "contributions" and to != SERVER:
            self.check_contributors(client, data)


def cotraining_refused(vectors, entry):
    run = run_of(vectors["cases"][entry["case"]])
    link = entry["from"], entry["to"]
    _, kind, honest = run.sessions[entry["session"]].out[link][entry["number"]]
    changed = unhex(entry["payload"])
    yield "one payload for another", changed != honest, True
    message = *link, entry["number"], kind
    refusal = refused_by(entry, Checks(run, entry["session"]).check, (*message, honest),
                         (*message, changed))
    yield from blame(refusal, entry)


CHECKS = {
    "ballots": (ballots_case, None),
    "cotraining": (cotraining_case, cotraining_refused),
    "quorum": (quorum_case, None),
    "vote-noise": (noise_case, None),
}
