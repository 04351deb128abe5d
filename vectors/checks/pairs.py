"""The common part of shade and phe: pairs of clients, and a server that hears from both."""
from .codes import apart, unpack_rows
from .messages import opened, sealed
from .primitives import SERVER, Refused, ids, need, number, unhex
from .reasons import blame, refused_by

OFFLINE, ONLINE = 2, 4
LAST = ids(SERVER)


def packed(numbers, width):
    """Packs numbers. The first one takes the lowest bits."""
    text = "".join(f"{n % 2**width:0{width}b}" for n in reversed(numbers))
    return int(text or "0", 2).to_bytes(-(-len(numbers) * width // 8), "little")


def unpacked(data, width, count):
    """Unpacks numbers. Bits beyond the last one do not count."""
    need(len(data) == -(-count * width // 8), f"{len(data)} bytes of numbers")
    text = f"{number(data) % 2**(count * width):0{count * width}b}"
    return [int(text[at - width:at or None], 2) for at in range(count * width, 0, -width)]


class Pairs:
    """A run of a backend between clients. `pair(a, b)` is the secret of their seals, and `first` is
    the number of the first message."""

    def __init__(self, session, bits, codes, secrets, pair, first=0):
        self.session, self.bits, self.width = session, bits, bits.bit_length()
        self.codes, self.secrets, self.pair, self.first = codes, secrets, pair, first

    def seal(self, from_, to, count, text):
        """Seals message number `count` of this run from one party to the other."""
        first = 0 if to == SERVER else self.first
        return sealed(self.session, self.pair(from_, to), from_, to, first + count, text)

    def open(self, from_, to, count, data, phase):
        """Opens a message, or blames its sender."""
        first = 0 if to == SERVER else self.first
        try:
            return opened(self.session, self.pair(from_, to), from_, to, first + count, data)
        except Refused as refusal:
            raise Refused(str(refusal), to, phase, [from_]) from None

    def pairs(self):
        """For each two clients with rows, the one with more rows first. Ties go to the smaller
        number."""
        able = [client for client, rows in enumerate(self.codes) if rows]
        for at, a in enumerate(able):
            for b in able[at + 1:]:
                yield (b, a) if len(self.codes[b]) > len(self.codes[a]) else (a, b)

    def distances(self, a, b):
        return [[apart(x, y) for y in self.codes[b]] for x in self.codes[a]]


def links(messages):
    """Messages by link, in order."""
    out = {}
    for message in messages:
        link = message["from"], message["to"]
        out.setdefault(link, []).append((message["phase"], unhex(message["payload"])))
    return out


def run_of(case, kind, **more):
    """The run of a case of two clients."""
    clients, own = case["clients"], unhex(case["pair_secret"])
    codes = [
        unpack_rows(unhex(client["codes"]), case["bits"], client["rows"]) for client in clients
    ]
    pair = lambda a, b: unhex(clients[min(a, b)]["pair_secret"]) if SERVER in (a, b) else own
    secrets = [unhex(client["secret"]) for client in clients]
    return kind(unhex(case["session"]), case["bits"], codes, secrets, pair, **more)


def pair_refused(run, vectors, entry):
    """The refusal in a run of two clients, one payload of which is changed."""
    case = vectors["cases"][entry["case"]]
    held = links(case["messages"])
    link = entry["from"], entry["to"]
    phase, honest = held[link][entry["number"]]
    changed = unhex(entry["payload"])
    yield "one payload for another", changed != honest, True
    yield "the phase of the message", phase, entry["phase"]
    refusal = refused_by(entry, run.check_message, (held, *link, entry["number"], honest),
                         (held, *link, entry["number"], changed))
    yield from blame(refusal, entry)
