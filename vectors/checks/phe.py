"""The distance backend phe: docs/spec/phe.md. Ciphertexts have randomness of their own, so the
checks decrypt them and compare the plaintexts."""
from .messages import Reader
from .paillier import check_ciphertext, check_modulus
from .pairs import LAST, OFFLINE, ONLINE, Pairs, links, pair_refused, run_of
from .primitives import SERVER, Refused, Stream, derive, ids, need, number, pieces


class Phe(Pairs):
    """A run. `seed` is the common seed of the clients, if it is known."""

    def __init__(self, session, bits, codes, secrets, pair, first=0, key_bits=256, seed=None):
        super().__init__(session, bits, codes, secrets, pair, first)
        self.key_bits, self.seed = key_bits, seed
        self.size, self.element = -(-key_bits // 8), -(-2 * key_bits // 8)
        self.slots = (key_bits - 1) // self.width
        self.zeros = -(-(-(-(key_bits + 256) // 8)) // 8) * 8
        fit = max(8, 2**20 // self.element // 8 * 8)
        self.each = [len(part) for part in pieces(range(bits + 1), fit)]

    def pairs(self):
        """The owner and the evaluator of each pair."""
        for a, b in super().pairs():
            yield (b, a) if len(self.codes[b]) < len(self.codes[a]) else (a, b)

    def blocks(self, owner):
        return pieces(self.codes[owner], self.slots)

    def numbers(self, text, size, count):
        need(len(text) == size * count, f"{len(text)} bytes of numbers, {size * count} are due")
        return [number(part) for part in pieces(text, size)]

    def ciphertexts(self, text, count, n):
        out = self.numbers(text, self.element, count)
        for c in out:
            check_ciphertext(c, n)
        return out

    def modulus(self, text):
        n, = self.numbers(text, self.size, 1)
        need(n.bit_length() == self.key_bits, "a modulus of another length")
        check_modulus(n)
        return n

    def bases(self, owner, n):
        name = n.to_bytes(self.size, "little").rstrip(b"\0")
        stream = Stream(derive(self.seed, self.session, "noise bases", ids(owner) + name))
        return [stream.below(n, 1) for _ in range(self.zeros)]

    def masks(self, owner, evaluator):
        return derive(self.secrets[evaluator], self.session, "masks", ids(evaluator, owner))

    # The messages due on a link: for each its phase, and a reader of its text.

    def due_to_evaluator(self, owner):
        """Readers take the modulus, which the first reader finds."""
        zeros = [len(part) for part in pieces(range(self.zeros), 512)]
        out = [(OFFLINE, lambda text, n: self.modulus(text))]
        out += [(OFFLINE, lambda text, n, count=count: self.numbers(text, self.size, count))
                for count in zeros]
        for _ in self.blocks(owner):
            out += [(ONLINE, lambda text, n, count=count: self.ciphertexts(text, count, n))
                    for count in self.each]
        return out

    def due_to_owner(self, owner, evaluator):
        rows = [len(part) for part in pieces(self.codes[evaluator], 1024)]
        return [(ONLINE, lambda text, n, count=count: self.ciphertexts(text, count, n))
                for _ in self.blocks(owner) for count in rows]

    def read(self, from_, to, due, payloads, n=None):
        """The content of the messages of a link, or who is to blame."""
        out = []
        for count, ((phase, reader), data) in enumerate(zip(due, payloads, strict=True)):
            text = self.open(from_, to, count, data, phase)
            try:
                out.append(reader(text, out[0] if n is None and out else n))
            except Refused as refusal:
                raise Refused(str(refusal), to, phase, [from_]) from None
        return out

    def read_pair(self, owner, evaluator, held):
        """The modulus, noise, ciphertexts and results of a pair."""
        there, back = ([payload for _, payload in held[link]]
                       for link in ((owner, evaluator), (evaluator, owner)))
        due = self.due_to_evaluator(owner)
        n, *rest = self.read(owner, evaluator, due, there)
        results = self.read(evaluator, owner, self.due_to_owner(owner, evaluator), back, n)
        count = -(-self.zeros // 512)
        zeros, ciphertexts = ([x for part in parts for x in part]
                              for parts in (rest[:count], rest[count:]))
        return n, zeros, ciphertexts, [c for part in results for c in part]

    def reports(self, received):
        """The reports to the server, by their sender and the client that they are about."""
        out = {}
        for client, payloads in received.items():
            for count, data in enumerate(payloads):
                reader = Reader(self.open(client, SERVER, count, data, ONLINE))
                out.setdefault((client, reader.number(4)), []).append(reader.data)
        return out

    def server(self, received):
        """The modulus of each owner and the distances of each pair, or who is to blame."""
        told, out = self.reports(received), {}
        for owner, evaluator in self.pairs():
            seed, = told[evaluator, owner]
            need(len(seed) == 32, f"a seed of {len(seed)} bytes", SERVER, ONLINE, [evaluator])
            announced, *sums = told[owner, evaluator]
            n, masks, rows = number(announced), Stream(seed), []
            need(len(announced) == self.size and n.bit_length() == self.key_bits, "no modulus",
                 SERVER, ONLINE, [owner])
            for block in self.blocks(owner):
                columns = []
                for part in pieces(self.codes[evaluator], 1024):
                    for tau in self.numbers(sums.pop(0), self.size, len(part)):
                        packed = (tau - masks.below(n, 1)) % n
                        slots = [
                            packed >> slot * self.width & 2**self.width - 1
                            for slot in range(len(block))
                        ]
                        rest = packed >> len(block) * self.width
                        good = tau < n and rest == 0 and max(slots) <= self.bits
                        need(good, "a distance above L", SERVER, ONLINE, sorted((owner, evaluator)))
                        columns.append(slots)
                rows += map(list, zip(*columns))
            need(not sums, "more sums than are due", SERVER, ONLINE, [owner])
            out[owner, evaluator] = n, rows
        return out

    def check_message(self, held, from_, to, count, data):
        """The receiver's check of a changed message. The others are as in the vectors."""
        changed = list(held[from_, to])
        changed[count] = changed[count][0], data
        held = held | {(from_, to): changed}
        if to == SERVER:
            self.server({link[0]: [payload for _, payload in messages]
                         for link, messages in held.items() if link[1] == SERVER})
        else:
            self.read_pair(*((from_, to) if (from_, to) in self.pairs() else (to, from_)), held)

    def check(self, held):
        """Compares all messages, by link."""
        pairs = list(self.pairs())
        clients = range(len(self.codes))
        due = {*pairs, *((b, a) for a, b in pairs), *((client, SERVER) for client in clients)}
        yield "links", set(held), due
        received = {client: [payload for _, payload in held[client, SERVER]] for client in clients}
        told, found, moduli = self.reports(received), self.server(received), {}
        for client in clients:
            yield f"the last word of {client}", told[client, SERVER], [b""]
            sent = received[client]
            last = self.open(client, SERVER, len(sent) - 1, sent[-1], ONLINE)
            yield f"{client} says it last", last, LAST
            yield f"phases of {client}", {phase for phase, _ in held[client, SERVER]}, {ONLINE}
        yield "whom reports are about", set(told), due
        for owner, evaluator in pairs:
            what = f"{owner} and {evaluator}: "
            yield what + "phases there", [p for p, _ in held[owner, evaluator]], [
                p for p, _ in self.due_to_evaluator(owner)]
            yield what + "phases back", {p for p, _ in held[evaluator, owner]}, {ONLINE}
            n, zeros, ciphertexts, results = self.read_pair(owner, evaluator, held)
            yield what + "modulus", found[owner, evaluator][0], n
            yield what + "masks", told[evaluator, owner], [self.masks(owner, evaluator)]
            different = len({*ciphertexts, *results})
            yield what + "all differ", different, len(ciphertexts) + len(results)
            yield what + "noise below N²", max(zeros) < n, True
            if self.seed:
                for a, x in zip(self.bases(owner, n), zeros):
                    check_ciphertext(a + n * x, n)
            same = moduli.setdefault(owner, (n, ciphertexts))
            yield what + "the same to all evaluators", same, (n, ciphertexts)
            yield what + "distances", found[owner, evaluator][1], self.distances(owner, evaluator)


def phe_run(case):
    return run_of(case, Phe, key_bits=case["key_bits"], seed=bytes.fromhex(case["seed"]))


def phe_case(case):
    run = phe_run(case)
    yield from run.check(links(case["messages"]))
    yield "distances", [h for row in run.distances(0, 1) for h in row], case["distances"]


def phe_refused(vectors, entry):
    yield from pair_refused(phe_run(vectors["cases"][entry["case"]]), vectors, entry)


CHECKS = {"phe": (phe_case, phe_refused)}
