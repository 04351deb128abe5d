"""Means and deviations of features over all clients, and the refusals. See docs/spec/scaling.md."""
import hashlib
import math
import struct
from collections import defaultdict

from .labels import SETUP, Setup, depth_differences
from .labels_refused import SetupChecks
from .primitives import (SERVER, Refused, double, hexed, need, number, pieces, stream, unhex)
from .reasons import blame, refused_by
from .sharing import signed
from .sums import MASKED, UNMASKING, Sum

DIGITS, PLACES = (10, 18), 64
WORDS = sum(DIGITS)


def places(value):
    """round(value · 2⁶⁴), exactly."""
    top, bottom = value.as_integer_ratio()
    whole = (2 * (abs(top) << PLACES) + bottom) // (2 * bottom)
    return whole if top >= 0 else -whole


def digits(total, count):
    out = [total >> 16 * i & 0xFFFF for i in range(count - 1)]
    return out + [total >> 16 * (count - 1)]


def columns(rows, dim):
    """The digits of the sum and of the sum of squares of each column."""
    for column in range(dim):
        own = [places(row[column]) for row in rows]
        need(all(abs(z) < 2**(63 + PLACES) for z in own), "a value that is too large")
        yield digits(sum(own), DIGITS[0])
        yield digits(sum(z * z for z in own), DIGITS[1])


def hidden(numbers, seed):
    """The words of all numbers in order, with hidden carries."""
    count = sum(len(number_) - 1 for number_ in numbers)
    randoms = iter(number(data) >> 28 for data in pieces(stream("chacha20", seed, 8 * count), 8))
    out = []
    for own in numbers:
        own = own[:]
        for at in range(1, len(own)):
            r = next(randoms)
            own[at - 1] += r << 16
            own[at] -= r
        out += own
    return [word % 2**64 for word in out]


def moments(words, rows):
    """Mean and deviation of a column."""
    words = [signed(word % 2**64, 64) for word in words]
    value = lambda part: sum(word << 16 * at for at, word in enumerate(part))
    total, squares = value(words[:DIGITS[0]]), value(words[DIGITS[0]:])
    spread = rows * squares - total**2
    need(rows and spread >= 0 and squares <= rows << 254, "sums that no rows have")
    unit = math.ldexp(1, -PLACES)
    return float(total) / rows * unit, math.sqrt(float(spread)) / rows * unit


class Scaling(Setup):
    """A session: the setup, then one sum."""

    def __init__(self, case):
        super().__init__(case, [len(client["features"]) for client in case["clients"]], True)
        self.rows = [[list(map(double, row)) for row in client["features"]]
                     for client in self.clients]
        self.dim = len(self.rows[0][0])
        later = list(map(self.later, self.everybody))
        self.carries = [self.derive(seed, "carries") for seed in later]
        self.numbers = [list(columns(rows, self.dim)) for rows in self.rows]
        self.words = list(map(hidden, self.numbers, self.carries))
        self.pads = [self.pad(place) for place in self.everybody]
        frames = [frame for frame in case["frames"] if frame["to"] == SERVER]
        sent = lambda phase: [any(frame["from"] == place and frame["phase"] == phase
                                  for frame in frames) for place in self.everybody]
        self.contributing = sent(MASKED)
        padded = [[(a + b) % 2**64 for a, b in zip(words, pad, strict=True)]
                  for words, pad in zip(self.words, self.pads, strict=True)]
        self.sum = Sum(self.session, 0, self.suite, 8, 0, (0, self.dim * WORDS),
                       [self.derive(seed, "sums") for seed in later],
                       [(0, 0)] * len(self.clients), padded, self.min_clients, True,
                       self.malicious_server, None, self.identities, sent(8), self.contributing)

    def pad(self, place):
        data = stream("chacha20", self.derive(self.bound, "scaling", place), 8 * WORDS * self.dim)
        return list(map(number, pieces(data, 8)))

    def total(self, padded):
        """The total without the contributors' pads."""
        pads = [pad for pad, there in zip(self.pads, self.contributing) if there]
        return [(word - sum(column)) % 2**64 for word, column in zip(padded, zip(*pads))]

    def scale(self, padded):
        count = sum(len(rows) for rows, there in zip(self.rows, self.contributing) if there)
        return [moments(column, count) for column in pieces(self.total(padded), WORDS)]

    def links(self):
        """All messages of a link, as phase, kind and payload."""
        out = {}
        for place in self.everybody:
            out[place, SERVER] = [
                (SETUP, "hello", self.hellos[place]),
                (SETUP, "contributions", self.contributions_of(place)),
                *((phase, "sum", data) for phase, data in self.sum.to_server(place))]
            out[SERVER, place] = [
                (SETUP, "roster", self.roster()),
                (SETUP, "contributions", self.admission(place)),
                *((phase, "sum", data) for phase, data in self.sum.to_client(place))]
        return out


def packed(words):
    return struct.pack(f"<{len(words)}Q", *(word % 2**64 for word in words)).hex()


def scaling_case(case):
    run = Scaling(case)
    yield "group seed", run.group.hex(), case["group_seed"]
    for place, client in enumerate(case["clients"]):
        plain = [digit for number_ in run.numbers[place] for digit in number_]
        yield f"digits of {place}", packed(plain), client["digits"]
        yield f"words of {place}", packed(run.words[place]), client["words"]
        yield f"pad of {place}", packed(run.pads[place]), client["pad"]
    there = [place for place in run.everybody if run.contributing[place]]
    yield "contributors", there, case["contributors"]
    padded = run.sum.total()
    yield "padded total", packed(padded), case["padded_total"]
    yield "total", packed(run.total(padded)), case["total"]
    means, deviations = zip(*run.scale(padded))
    yield "means", list(map(hexed, means)), case["means"]
    yield "deviations", list(map(hexed, deviations)), case["deviations"]
    frames = defaultdict(list)
    for frame in case["frames"]:
        frames[frame["from"], frame["to"]].append(frame)
    due = run.links()
    yield "links", set(frames), set(due)
    for link, messages in due.items():
        what, sent = f"from {link[0]} to {link[1]}: ", frames[link]
        drops = not run.contributing[min(link)]
        yield what + "number of frames", len(sent) < len(messages) if drops else len(
            sent) == len(messages), True
        yield what + "numbers", [frame["number"] for frame in sent], list(range(len(sent)))
        for frame, (phase, kind, payload) in zip(sent, messages):
            if drops and frame["length"] == 0:
                continue  # An abort.
            name = f"{what}{kind}, number {frame['number']}, "
            yield name + "phase", frame["phase"], phase
            yield name + "length", frame["length"], len(payload)
            yield name + "digest", frame["sha256"], hashlib.sha256(payload).hexdigest()
            yield name + "payload", frame["payload"], payload.hex()
    yield from depth_differences(case["frames"])


class Checks(SetupChecks):
    def check(self, from_, to, nth, kind, data):
        if kind != "sum":
            return self.check_setup(from_, to, kind, data)
        self.run.sum.check_message(from_, to, nth - 2, data)
        if to != SERVER and nth == 5:
            try:
                self.run.scale(list(map(number, pieces(data, 8))))
            except Refused as refusal:
                raise Refused(str(refusal), to, UNMASKING, [SERVER]) from None


def scaling_refused(vectors, entry):
    """A refused case of a semi-honest run in which nobody drops out."""
    run = Scaling(vectors["cases"][entry["case"]])
    link = entry["from"], entry["to"]
    _, kind, honest = run.links()[link][entry["number"]]
    changed = unhex(entry["payload"])
    yield "one payload for another", changed != honest, True
    message = *link, entry["number"], kind
    refusal = refused_by(entry, Checks(run).check, (*message, honest), (*message, changed))
    yield from blame(refusal, entry)


CHECKS = {"scaling": (scaling_case, scaling_refused)}
