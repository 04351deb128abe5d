"""Rounds of means: layouts, and whole sessions without the messages of their secure sums. See
docs/spec/rounds.md."""
import math
import struct

from . import messages
from .primitives import SERVER, Refused, double, hexed, ids, need, number, pieces, round_away, unhex
from .reasons import blame, refused_by
from .sharing import encode, fraction_bits, signed

ROUND, CONTRIBUTION, RESULT = 14, 15, 16
MOST_ARRAYS, MOST_VALUES, LONGEST_NAME, MOST_DIMENSIONS = 1 << 14, 1 << 28, 256, 32
TILE = 1 << 20


class Reader(messages.Reader):
    """The unread rest of a payload."""

    def end(self):
        need(not self.data, f"{len(self.data)} bytes too many")


# Layouts.

def layout(arrays):
    out = ids(len(arrays))
    for array in arrays:
        name = array["name"].encode()
        out += struct.pack("<H", len(name)) + name + bytes([array["doubles"], len(array["shape"])])
        out += struct.pack(f"<{len(array['shape'])}Q", *array["shape"])
    return out


def read_layout(data):
    reader, arrays, total = Reader(data), [], 0
    for _ in range(reader.below(4, MOST_ARRAYS + 1)):
        name = reader.take(reader.number(2))
        try:
            text = name.decode()
        except UnicodeDecodeError:
            raise Refused("a name that is not UTF-8") from None
        doubles = bool(reader.below(1, 2))
        dimensions = reader.number(1)
        need(len(name) <= LONGEST_NAME and dimensions <= MOST_DIMENSIONS,
             "a name or a shape is too long")
        shape = [reader.number(8) for _ in range(dimensions)]
        total += math.prod(shape)
        need(total <= MOST_VALUES, "too many values")
        need(all(text != array["name"] for array in arrays), "a name comes twice")
        arrays.append({"name": text, "shape": shape, "doubles": doubles})
    reader.end()
    return arrays


def count(arrays):
    return sum(math.prod(array["shape"]) for array in arrays)


def layout_of_values(data):
    arrays = read_layout(data)
    need(count(arrays) > 0, "no values")
    return arrays


def layout_case(case):
    yield "bytes", layout(case["arrays"]).hex(), case["bytes"]
    yield "values", count(case["arrays"]), case["values"]
    yield "read again", read_layout(unhex(case["bytes"])), case["arrays"]


def layout_refused(vectors, entry):
    refused_by(entry, read_layout, (unhex(vectors["cases"][0]["bytes"]),), (unhex(entry["bytes"]),))
    return ()


# Sessions.

def packed(words):
    return struct.pack(f"<{len(words)}Q", *words)


def tiles(data):
    return pieces(data, TILE)


class Job:
    """The conversion of values to words, and of sums of words to means."""

    def __init__(self, case):
        self.weighted, self.clip = case["weighted"], case["clip"]
        self.bound, self.most = double(case["bound"]), double(case["max_weight"])
        clients = case["most_clients"]
        self.fraction = fraction_bits(64, clients, self.bound * (self.most if self.weighted else 1))
        self.weights = fraction_bits(64, clients, self.most)

    def words(self, values, weight):
        """The words, and the number of clipped values."""
        clipped = sum(abs(value) > self.bound for value in values) if self.clip else 0
        if self.clip:
            values = [math.copysign(min(abs(value), self.bound), value) for value in values]
        if not self.weighted:
            return [encode(value, self.bound, self.fraction, 64) for value in values], clipped
        need(0 <= weight <= self.most, "a weight that is beyond the largest")
        need(all(abs(value) <= self.bound for value in values), f"a value is beyond {self.bound}")
        words = [round_away(math.ldexp(value * weight, self.fraction)) for value in values]
        words.append(round_away(math.ldexp(weight, self.weights)))
        return [word % 2**64 for word in words], clipped

    def mean(self, words, arrays, contributors):
        """The values, in the precision of their arrays, and the weight."""
        numbers = [float(signed(word, 64)) for word in words]
        if self.weighted:
            weight = math.ldexp(numbers.pop(), -self.weights)
            need(weight > 0, "a mean without a weight")
            values = [math.ldexp(value, -self.fraction) / weight for value in numbers]
        else:
            weight = float(contributors)
            values = [math.ldexp(value, -self.fraction) for value in numbers]
        out = []
        for array in arrays:
            own, values = values[:math.prod(array["shape"])], values[math.prod(array["shape"]):]
            if not array["doubles"]:
                own = [struct.unpack("<f", struct.pack("<f", value))[0] for value in own]
            out += own
        return out, weight

    def count(self, arrays):
        return count(arrays) + self.weighted


def header(round_, contributors, arrays):
    return ids(round_, len(contributors), *contributors) + layout(arrays)


def sent_mean(round_, contributors, arrays, words):
    """The messages of a mean, in order."""
    return [header(round_, contributors, arrays), *tiles(words)]


def session_case(case):
    job, arrays, before = Job(case), case["arrays"], case["before"]
    finished, due = case["finished"], case["finished"] < case["rounds"]
    everybody = list(range(len(case["clients"])))
    total = [0] * job.count(arrays)
    for place, client in enumerate(case["clients"]):
        values = list(map(double, client["values"]))
        words, clipped = job.words(values, double(client["weight"]))
        total = [(a + b) % 2**64 for a, b in zip(total, words, strict=True)]
        lacks = finished > client["has"]
        last = []
        if lacks:
            words_before = unhex(before["words"])
            last = sent_mean(finished, before["contributors"], arrays, words_before)
        own = layout(arrays).hex() if due else None
        now = sent_mean(finished + 1, everybody, arrays, unhex(case["total"])) if due else []
        for name, made in (("words", packed(words).hex()), ("clipped", clipped),
                           ("number", ids(client["has"]).hex()),
                           ("opening", (ids(finished) + bytes([due, lacks])).hex()),
                           ("last_mean", [message.hex() for message in last]), ("layout", own),
                           ("layout_received", own), ("mean", [message.hex() for message in now])):
            yield f"{name} of client {place}", made, client[name]
    yield "the sum", packed(total).hex() if due else None, case["total"]
    values, weight = job.mean(total, arrays, len(everybody)) if due else ([], None)
    yield "the mean", [hexed(value) for value in values], case["values"]
    yield "its weight", hexed(weight) if due else None, case["weight"]


def read_header(data):
    reader = Reader(data)
    round_, who = reader.number(4), reader.number(4)
    contributors = list(struct.unpack(f"<{who}I", reader.take(4 * who)))
    need(contributors == sorted(set(contributors)) and SERVER not in contributors,
         "contributors that are not clients in ascending order")
    return round_, contributors, layout_of_values(reader.data)


def read_words(data, due):
    reader = Reader(data)
    out = struct.unpack(f"<{due}Q", reader.take(8 * due))
    reader.end()
    return list(out)


def read_number(data):
    reader = Reader(data)
    out = reader.number(4)
    reader.end()
    return out


def read_opening(data):
    reader = Reader(data)
    out = reader.number(4), reader.below(1, 2), reader.below(1, 2)
    reader.end()
    return out


def handled(case, client, phase, what, data):
    """The receiver's check of a message. `phase` is the receiver's phase."""
    job, arrays, place = Job(case), case["arrays"], case["clients"].index(client)
    finished = case["finished"]
    receiver, sender = (SERVER, place) if what in ("number", "layout") else (place, SERVER)
    try:
        if what == "number":
            read_number(data)
        elif what == "layout":
            layout_of_values(data)
        elif what == "opening":
            told, due, follows = read_opening(data)
            need(told == finished, "another round than that of the session")
            need(due == (finished < case["rounds"]), "another number of rounds than the job's")
            need(follows == (finished > client["has"]),
                 "a mean that is not due, or none where one is")
        elif what == "layout_received":
            if layout_of_values(data) != arrays:
                raise Refused("other arrays than the others'", receiver, phase)
        elif what in ("last_mean 0", "mean 0"):
            told, contributors, shapes = read_header(data)
            if what == "last_mean 0":
                need(told == finished, "the mean is not of the last round")
            else:
                need(told == finished + 1 and shapes == arrays, "the mean is not of this round")
                everybody = list(range(len(case["clients"])))
                need(contributors == everybody, "the mean is of others than the sum")
            need(len(contributors) >= case["min_clients"], "the mean is of too few clients")
        else:
            job.mean(read_words(data, job.count(arrays)), arrays, len(case["clients"]))
    except Refused as refusal:
        if refusal.party is not None:
            raise
        raise Refused(str(refusal), receiver, phase, [sender]) from None


def session_refused(vectors, entry):
    case = vectors["cases"][entry["case"]]
    place = entry["to"] if entry["from"] == SERVER else entry["from"]
    client = case["clients"][place]
    if entry["from"] == SERVER:
        # The three messages of the secure sum come before the mean.
        names = [
            "opening", *(f"last_mean {at}" for at in range(len(client["last_mean"]))),
            "layout_received", *("the sum's",) * 3,
            *(f"mean {at}" for at in range(len(client["mean"])))
        ]
    else:
        names = ["number", "layout"]
    what = names[entry["number"]]
    field, _, at = what.partition(" ")
    honest = client[field][int(at)] if at else client[field]
    phases = {"number": ROUND, "opening": ROUND, "last_mean": ROUND, "mean": RESULT}
    phase = phases.get(field, CONTRIBUTION)
    refusal = refused_by(entry, handled, (case, client, phase, what, unhex(honest)),
                         (case, client, phase, what, unhex(entry["payload"])))
    yield from blame(refusal, entry)


CHECKS = {
    "layout": (layout_case, layout_refused),
    "round": (session_case, session_refused),
}
