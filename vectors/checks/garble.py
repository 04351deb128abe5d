"""Garbled circuits: the builder, half-gates, and both sides of whole runs. See
docs/spec/garble.md."""
import functools
import hashlib
import struct

from .labels import depth_differences, frame_differences
from .pairs import packed, unpacked
from .primitives import Refused, chacha20, derive, ids, need, number, pieces, unhex
from .reasons import blame, refused_by
from .transfers import (Context, Extension, base_chosen, base_reply, block, check_proof, punctured,
                        reply_point, setup_length, tmmo, whole)

GARBLING = 19
NO_WIRE = 2**32 - 1
BATCH = 8 * 2048 - 64
AUDIENCES = ["evaluator", "garbler", "both"]


def index_bits(count):
    return (max(count, 1) - 1).bit_length()


# Circuits. A bit is True, False, or a wire with whether it is inverted.

def inverse(bit):
    return not bit if isinstance(bit, bool) else (bit[0], not bit[1])


def constant(value, width):
    return [bool(value >> i & 1) for i in range(width)]


class Builder:
    def __init__(self, garbler, evaluator):
        self.inputs, self.gates = (garbler, evaluator), []

    def garbler(self, i):
        return i, False

    def evaluator(self, i):
        return self.inputs[0] + i, False

    def push(self, kind, a, b):
        self.gates.append([kind, a, b])
        return sum(self.inputs) + len(self.gates) - 1

    def xor(self, a, b):
        if isinstance(a, bool):
            return inverse(b) if a else b
        if isinstance(b, bool):
            return inverse(a) if b else a
        (x, p), (y, q) = a, b
        return p != q if x == y else (self.push(0, x, y), p != q)

    def and_(self, a, b):
        if isinstance(a, bool):
            return a and b
        if isinstance(b, bool):
            return b and a
        (x, p), (y, q) = a, b
        if x == y:
            return a if p == q else False
        return self.push(1 + 2 * p + 4 * q, x, y), False

    def or_(self, a, b):
        return inverse(self.and_(inverse(a), inverse(b)))

    def carry(self, a, b, c):
        x, y = self.xor(a, c), self.xor(b, c)
        return self.xor(self.and_(x, y), c)

    def add(self, a, b, carry=False):
        out = []
        for i, (x, y) in enumerate(zip(a, b, strict=True)):
            out.append(self.xor(self.xor(x, y), carry))
            carry = self.carry(x, y, carry) if i < len(a) - 1 else carry
        return out

    def subtract(self, a, b):
        return self.add(a, list(map(inverse, b)), True)

    def less(self, a, b):
        out = False
        for x, y in zip(a, b, strict=True):
            out = self.carry(inverse(x), y, out)
        return out

    def equal(self, a, b):
        out = True
        for x, y in zip(a, b, strict=True):
            out = self.and_(out, inverse(self.xor(x, y)))
        return out

    def select(self, choice, a, b):
        return [self.xor(y, self.and_(choice, self.xor(x, y))) for x, y in zip(a, b, strict=True)]

    def max(self, a, b):
        return self.select(self.less(a, b), b, a)

    def min(self, a, b):
        return self.select(self.less(b, a), b, a)

    def best(self, numbers, is_better):
        """Index and number of the winner of a tournament of neighbours."""
        width = index_bits(len(numbers))
        left = [(constant(index, width), own) for index, own in enumerate(numbers)]
        while len(left) > 1:
            pairs, left = pieces(left, 2), []
            for pair in pairs:
                if len(pair) == 1:
                    left += pair
                    continue
                a, b = pair
                second = is_better(a[1], b[1])
                index = self.select(second, b[0], a[0])
                left.append((index, self.select(second, b[1], a[1])))
        return left[0]

    def argmax(self, numbers):
        return self.best(numbers, self.less)

    def argmin(self, numbers):
        return self.best(numbers, lambda a, b: self.less(b, a))

    def finish(self, outputs):
        return Circuit(self.inputs, self.gates, outputs)


class Circuit:
    """The gates that some output needs, with their wires numbered again."""

    def __init__(self, inputs, gates, outputs):
        first = sum(inputs)
        needed = {bit[0] for bit in outputs if not isinstance(bit, bool)}
        for at in reversed(range(len(gates))):
            if first + at in needed:
                needed |= set(gates[at][1:])
        new, self.gates = {wire: wire for wire in range(first)}, []
        for wire, (kind, a, b) in enumerate(gates, first):
            if wire in needed:
                new[wire] = first + len(self.gates)
                self.gates.append([kind, new[a], new[b]])
        self.inputs = inputs
        self.outputs = [[NO_WIRE, int(bit)] if isinstance(bit, bool) else [new[bit[0]], int(bit[1])]
                        for bit in outputs]
        self.ands = sum(kind > 0 for kind, _, _ in self.gates)
        text = ids(*inputs, len(self.gates), len(self.outputs))
        text += b"".join(ids(*entry) for entry in self.gates + self.outputs)
        self.digest = hashlib.sha256(b"undertone/v1/circuit" + text).digest()

    def run(self, garbler, evaluator):
        """The outputs of one instance: bit i is output i."""
        wires = [*garbler, *evaluator]
        for kind, a, b in self.gates:
            x, y = wires[a], wires[b]
            wires.append((x ^ (kind >> 1 & 1)) & (y ^ (kind >> 2 & 1)) if kind else x ^ y)
        bit = lambda wire, flag: flag if wire == NO_WIRE else wires[wire] ^ flag
        return sum(bit(*output) << i for i, output in enumerate(self.outputs))

    def tiles(self, instances):
        size = 32 if self.ands <= 1024 else 8 if self.ands <= 8192 else 1
        return [range(at, min(instances, at + size)) for at in range(0, instances, size)]

    def tile_length(self, count, decoded):
        return 32 * self.ands * count + decoded * -(-len(self.outputs) * count // 8)


# The circuits of the vectors.

@functools.cache
def built_circuit(operation, width, count, k):
    c = Builder(width * -(-count // 2), width * (count // 2))
    n = [[(c.evaluator if at % 2 else c.garbler)(at // 2 * width + i) for i in range(width)]
         for at in range(count)]
    simple = {"add": c.add, "subtract": c.subtract, "max": c.max, "min": c.min}
    if operation in simple:
        return c.finish(simple[operation](n[0], n[1]))
    if operation in ("less", "equal"):
        return c.finish([getattr(c, operation)(n[0], n[1])])
    if operation == "or":
        return c.finish([c.or_(a, b) for a, b in zip(n[0], n[1])])
    if operation == "select":
        return c.finish(c.select(n[2][0], n[0], n[1]))
    if operation in ("argmax", "argmin"):
        index, best = getattr(c, operation)(n)
        return c.finish(index + best)
    if operation != "constants":
        raise ValueError(f"no operation {operation}")
    fixed, x, y = constant(k, width), n[0][0], n[1][0]
    out = c.add(n[0], fixed) + [c.less(n[1], fixed)] + fixed
    return c.finish(out + [c.xor(x, x), c.and_(x, inverse(x)), c.and_(x, x), inverse(y)])


def circuit_of(built):
    return built_circuit(built["operation"], built["width"], built["count"], built["constant"])


def computed(built, n):
    """What the operation gives by arithmetic."""
    width, k = built["width"], built["constant"]
    mask, best = 2**width - 1, {"argmax": max, "argmin": min}.get(built["operation"])
    if best:
        value = best(n)
        return n.index(value) | value << index_bits(len(n))
    if built["operation"] == "constants":
        out = (n[0] + k & mask) | (n[1] < k) << width | k << width + 1
        return out | (n[0] & 1) << 2 * width + 3 | (~n[1] & 1) << 2 * width + 4
    x, y = n[:2]
    return {"add": x + y & mask, "subtract": x - y & mask, "less": int(x < y),
            "equal": int(x == y), "max": max(x, y), "min": min(x, y), "or": x | y,
            "select": x if n[-1] & 1 else y}[built["operation"]]


def input_bits(built, numbers):
    """The bits of the garbler and of the evaluator: a list for each instance."""
    spread = lambda own: [value >> i & 1 for value in own for i in range(built["width"])]
    return [[spread(row[side::2]) for row in numbers] for side in range(2)]


def circuit_case(case):
    built = case["built"]
    made = circuit_of(built)
    yield "inputs", list(made.inputs), [case["garbler_inputs"], case["evaluator_inputs"]]
    yield "gates", made.gates, case["gates"]
    yield "outputs", made.outputs, case["outputs"]
    yield "AND gates", made.ands, case["ands"]
    yield "digest", made.digest.hex(), case["digest"]
    both = zip(*input_bits(built, case["numbers"]))
    yield "results", [made.run(*own) for own in both], case["results"]
    due = [computed(built, own) for own in case["numbers"]]
    yield "results by arithmetic", due, case["results"]


# Half-gates. The labels of a wire in all instances of a tile are one number, 128 bits each.

def joined(labels):
    return number(b"".join(map(block, labels)))


class Gates:
    """The AND gates of a tile, which begins at an instance."""

    def __init__(self, context, tile):
        self.key, self.tile = context.permutation("garbled gate", 0), tile
        self.size = 16 * len(tile)
        self.ones = joined([1] * len(tile))

    def all(self, value):
        return self.ones * value

    def lowest(self, labels):
        """All bits of the labels whose lowest bit is 1."""
        return (labels & self.ones) * (2**128 - 1)

    def hashes(self, gate, halves):
        """The hashes of labels, each with 0 or 1 for its half of the gate."""
        text = b"".join(labels.to_bytes(self.size, "little") for labels, _ in halves)
        tweaks = [2 * gate + half << 32 | r for _, half in halves for r in self.tile]
        return map(number, pieces(tmmo(self.key, text, tweaks), self.size))

    def garble(self, gate, a, b, delta):
        a0, a1, b0, b1 = self.hashes(gate, [(a, 0), (a ^ delta, 0), (b, 1), (b ^ delta, 1)])
        first = a0 ^ a1 ^ (self.lowest(b) & delta)
        second = b0 ^ b1 ^ a
        out = a0 ^ (self.lowest(a) & first) ^ b0 ^ (self.lowest(b) & (second ^ a))
        sides = [pieces(half.to_bytes(self.size, "little"), 16) for half in (first, second)]
        return out, b"".join(x + y for x, y in zip(*sides))

    def evaluate(self, gate, a, b, table):
        blocks = pieces(table, 16)
        first, second = (number(b"".join(blocks[side::2])) for side in range(2))
        ha, hb = self.hashes(gate, [(a, 0), (b, 1)])
        return ha ^ (self.lowest(a) & first) ^ hb ^ (self.lowest(b) & (second ^ a))


def garble_tile(circuit, context, tile, delta, wires):
    """From the labels for 0 of the inputs: those of all wires, the tables, and the decoding."""
    gates, tables, gate = Gates(context, tile), b"", 0
    wires, delta = wires[:], gates.all(delta)
    for kind, a, b in circuit.gates:
        if not kind:
            wires.append(wires[a] ^ wires[b])
            continue
        flip = lambda wire, bit: wires[wire] ^ (delta if kind >> bit & 1 else 0)
        out, table = gates.garble(gate, flip(a, 1), flip(b, 2), delta)
        wires.append(out)
        tables, gate = tables + table, gate + 1
    return wires, tables, colours(circuit, wires, len(tile), True)


def evaluate_tile(circuit, context, tile, wires, tables):
    """From the labels that the evaluator holds of the inputs: those of all wires, and colours."""
    gates, wires, parts = Gates(context, tile), wires[:], pieces(tables, 32 * len(tile))
    gate = 0
    for kind, a, b in circuit.gates:
        if not kind:
            wires.append(wires[a] ^ wires[b])
            continue
        wires.append(gates.evaluate(gate, wires[a], wires[b], parts[gate]))
        gate += 1
    return wires, colours(circuit, wires, len(tile), False)


def colours(circuit, wires, count, inverted):
    """For each instance the lowest bits of the outputs' labels. Only the garbler's take account of
    constants and of inversions."""
    def bit(r, wire, flag):
        own = 0 if wire == NO_WIRE else wires[wire] >> 128 * r & 1
        return own ^ (flag if inverted else 0)
    return [sum(bit(r, *output) << i for i, output in enumerate(circuit.outputs))
            for r in range(count)]


class Garbled:
    """All tiles of a circuit: what the garbler sends, and what the evaluator makes of it.
    `bits` are the garbler's, `zeros` and `held` the labels of the evaluator's inputs, each by
    instance."""

    def __init__(self, circuit, context, delta, active, bits, zeros, held, decoded):
        own = circuit.inputs[0]
        stream = pieces(chacha20(active, 16 * own * len(bits)), 16)
        labels = pieces(list(map(number, stream)), own) if own else [[]] * len(bits)
        self.messages, self.decoding, self.colours, self.labels, self.held = [], [], [], [], []
        for tile in circuit.tiles(len(bits)):
            wires = [joined(labels[r][i] ^ bits[r][i] * delta for r in tile) for i in range(own)]
            wires += [joined(zeros[r][i] for r in tile) for i in range(circuit.inputs[1])]
            made, tables, decoding = garble_tile(circuit, context, tile, delta, wires)
            wires = [joined(labels[r][i] for r in tile) for i in range(own)]
            wires += [joined(held[r][i] for r in tile) for i in range(circuit.inputs[1])]
            mine, found = evaluate_tile(circuit, context, tile, wires, tables)
            self.messages.append(
                tables + (packed(decoding, len(circuit.outputs)) if decoded else b""))
            self.decoding += decoding
            self.colours += found
            self.labels.append(made)
            self.held.append(mine)
        self.outputs = [a ^ b for a, b in zip(self.decoding, self.colours, strict=True)]


def tile_case(case):
    built = case["built"]
    circuit = circuit_of(built)
    mine, theirs = input_bits(built, case["numbers"])
    delta, width = number(unhex(case["delta"])), circuit.inputs[1]
    zeros = pieces(list(map(number, pieces(unhex(case["zeros"]), 16))), width)
    held = [[zero ^ bit * delta for zero, bit in zip(*own, strict=True)]
            for own in zip(zeros, theirs, strict=True)]
    context = Context(unhex(case["session"]), b"test", 0, 1)
    run = Garbled(circuit, context, delta, unhex(case["active"]), mine, zeros, held,
                  case["decoded"])
    yield "the lowest bit of delta", delta & 1, 1
    yield "messages", [message.hex() for message in run.messages], case["messages"]
    yield "decoding", run.decoding, case["decoding"]
    yield "colours", run.colours, case["colours"]
    yield "outputs", run.outputs, case["outputs"]
    due = [computed(built, own) for own in case["numbers"]]
    yield "outputs by arithmetic", due, case["outputs"]
    if case["labels"]:
        size = 16 * len(mine)
        for name, wires in (("labels", run.labels[0]), ("held", run.held[0])):
            yield name, [wire.to_bytes(size, "little").hex() for wire in wires], case[name]


# Whole runs.

class Run:
    """Both sides of a run. `seeds` and `bits` are those of the garbler and of the evaluator."""

    def __init__(self, session, purpose, parties, seeds, f, circuit, audience, bits):
        self.garbler, self.evaluator = parties
        self.circuit, self.instances = circuit, len(bits[0])
        self.for_evaluator, self.for_garbler = audience != "garbler", audience != "evaluator"
        self.seed = derive(seeds[0], session, "label transfers", ids(self.evaluator))
        self.made = made = Extension(session, purpose, *parties, (self.seed, seeds[1]), f, True,
                                     True)
        flat, width = [bit for row in bits[1] for bit in row], circuit.inputs[1]
        self.batches, zeros, held, random = [], b"", b"", []
        for first in range(0, len(flat), BATCH):
            count = min(BATCH, len(flat) - first)
            batch = made.batch(count)
            self.batches.append((first, -(-count // 64) + 1, batch))
            zeros, held = zeros + batch.zeros, held + batch.chosen
            random += [batch.choices >> t & 1 for t in range(count)]
        changes = [a ^ b for a, b in zip(flat, random, strict=True)]
        self.changes = whole(sum(bit << t for t, bit in enumerate(changes)), len(flat))
        zeros = [number(zero) ^ bit * made.delta
                 for zero, bit in zip(pieces(zeros, 16), changes, strict=True)]
        held = list(map(number, pieces(held, 16)))
        self.digest = hashlib.sha256(
            b"undertone/v1/garbled circuit" + circuit.digest +
            struct.pack("<QB", self.instances, AUDIENCES.index(audience))).digest()[:16]
        active = derive(seeds[0], session, "active labels", ids(self.evaluator))
        self.opening = self.digest + active
        self.tiles = Garbled(circuit, made.context, made.delta, active, bits[0],
                             pieces(zeros, width), pieces(held, width), self.for_evaluator)
        self.outputs = self.tiles.outputs

    def forward(self):
        """The garbler's messages."""
        out = [("points", self.made.offer)]
        out += [("challenge", batch.challenge) for _, _, batch in self.batches]
        out += [("opening", self.opening)]
        return out + [("tile", message) for message in self.tiles.messages]

    def backward(self):
        """The evaluator's messages. The corrections of a batch come before the proof of the
        previous one."""
        corrections = [("corrections", batch.corrections) for _, _, batch in self.batches]
        proofs = [("proof", batch.proof) for _, _, batch in self.batches]
        out = [("trees", self.made.setup), *corrections[:2]]
        for at, proof in enumerate(proofs):
            out += [proof, *corrections[at + 2:at + 3]]
        out.append(("changes", self.changes))
        if self.for_garbler:
            out.append(("colours", packed(self.tiles.colours, len(self.circuit.outputs))))
        return out

    def check_trees(self, data):
        made = self.made
        need(len(data) == setup_length(made.f, True), "trees of another length")
        reply_point(data[:32])
        chosen = base_chosen(made.context, made.choices, self.seed, made.offer, data[:32])
        punctured(made.context, made.f, True, made.delta, chosen, data[32:])

    def check(self, kind, at, data):
        """The receiver's check of message `at` of this kind."""
        due = {"corrections": lambda: self.batches[at][2].corrections,
               "challenge": lambda: self.batches[at][2].challenge,
               "changes": lambda: self.changes, "opening": lambda: self.opening,
               "tile": lambda: self.tiles.messages[at],
               "colours": lambda: self.backward()[-1][1]}
        if kind in due:
            length = len(due[kind]())
            need(len(data) == length, f"{kind} of {len(data)} bytes, {length} are due")
        if kind == "points":
            base_reply(self.made.context, data, bytes(32))
        elif kind == "trees":
            self.check_trees(data)
        elif kind == "proof":
            first, words, batch = self.batches[at]
            check_proof(number(batch.challenge), self.made.delta, batch.ws, data, first, words)
        elif kind == "opening":
            need(data[:16] == self.digest, "another circuit")

    def check_message(self, messages, nth, to, from_, data):
        """The check of one of the messages that `forward` or `backward` gives."""
        kind = messages[nth][0]
        at = sum(other == kind for other, _ in messages[:nth])
        try:
            self.check(kind, at, data)
        except Refused as refusal:
            raise Refused(str(refusal), to, GARBLING, [from_]) from None


@functools.lru_cache(4)
def run_of_text(session, purpose, seeds, f, audience, built, numbers):
    named = dict(zip(("operation", "width", "count", "constant"), built))
    bits = input_bits(named, numbers)
    return Run(session, purpose, (0, 1), seeds, f, built_circuit(*built), audience, bits)


def run_of(case):
    built = case["built"]
    return run_of_text(unhex(case["session"]), case["purpose"].encode(),
                       tuple(map(unhex, case["seeds"])), case["field"], case["audience"],
                       tuple(built[name] for name in ("operation", "width", "count", "constant")),
                       tuple(map(tuple, case["numbers"])))


def garble_case(case):
    run = run_of(case)
    yield "digest", run.circuit.digest.hex(), case["digest"]
    due = [computed(case["built"], list(own)) for own in case["numbers"]]
    yield "outputs", run.outputs, due
    yield "the garbler's", due if run.for_garbler else [], case["garbler"]
    yield "the evaluator's", due if run.for_evaluator else [], case["evaluator"]
    if run.for_garbler:
        read = unpacked(run.backward()[-1][1], len(run.circuit.outputs), run.instances)
        found = [a ^ b for a, b in zip(read, run.tiles.decoding, strict=True)]
        yield "the garbler's by colours", found, due
    phased = lambda messages: [(GARBLING, *message) for message in messages]
    links = {(0, 1): phased(run.forward()), (1, 0): phased(run.backward())}
    yield from frame_differences(case["frames"], links)
    yield from depth_differences(case["frames"], (GARBLING,))


def garble_refused(vectors, entry):
    run = run_of(vectors["cases"][entry["case"]])
    messages = run.forward() if entry["from"] == run.garbler else run.backward()
    honest, changed = messages[entry["number"]][1], unhex(entry["payload"])
    yield "one payload for another", changed != honest, True
    link = entry["number"], entry["to"], entry["from"]
    refusal = refused_by(entry, run.check_message, (messages, *link, honest),
                         (messages, *link, changed))
    yield from blame(refusal, entry)


CHECKS = {
    "circuit": (circuit_case, None),
    "garble": (garble_case, garble_refused),
    "garbled-tile": (tile_case, None),
}
