"""The distance backend psm, computed again from PROTOCOLS.md with the Python standard library alone."""
import struct

from check_sums import derive, ids, sealed_message, stream

SERVER = 2**32 - 1


class Run:
    def __init__(self, case):
        self.case = case
        self.session = bytes.fromhex(case["session"])
        self.bits = case["bits"]
        self.width = self.bits.bit_length()
        self.codes = [self.unpacked(client) for client in case["clients"]]

    def unpacked(self, client):
        data, size = bytes.fromhex(client["codes"]), -(-self.bits // 8)
        rows = [data[i * size:(i + 1) * size] for i in range(client["rows"])]
        return [[row[l // 8] >> 7 - l % 8 & 1 for l in range(self.bits)] for row in rows]

    def words(self, purpose, count, *numbers):
        seed = derive(bytes.fromhex(self.case["seed"]), self.session, purpose, ids(*numbers))
        return struct.unpack(f"<{count}H", stream(self.case["suite"], seed, 2 * count))

    def code_mask(self, attempt, client):
        count = len(self.codes[client])
        words = self.words("code mask", count * self.bits, attempt, client)
        return [words[a * self.bits:(a + 1) * self.bits] for a in range(count)]

    def masked(self, attempt, client):
        return [[x + m for x, m in zip(row, mask)]
                for row, mask in zip(self.codes[client], self.code_mask(attempt, client))]

    def packed(self, numbers):
        total = sum((n % 2**self.width) << i * self.width for i, n in enumerate(numbers))
        return total.to_bytes(-(-len(numbers) * self.width // 8), "little")

    def half(self, attempt, me, other):
        j, k = min(me, other), max(me, other)
        columns = len(self.codes[k])
        mask = self.words("distance mask", len(self.codes[j]) * columns, attempt, j, k)
        left = self.codes[j] if me == j else self.code_mask(attempt, j)
        right = self.code_mask(attempt, k) if me == j else self.masked(attempt, k)
        out = []
        for a, x in enumerate(left):
            for i, y in enumerate(right):
                ones = sum(self.codes[j][a] if me == j else self.codes[k][i])
                sign = 1 if me == j else -1
                out.append(2 * sum(p * q for p, q in zip(x, y)) + ones + sign * mask[a * columns + i])
        return self.packed(out)

    def plaintexts(self, attempt, me, set_):
        """All rows of these runs fit one message, and one tile."""
        yield b"".join(self.packed(row) for row in self.masked(attempt, me))
        for other in set_:
            if other != me and self.codes[other] and self.codes[me]:
                yield self.half(attempt, me, other)

    def messages(self, me):
        attempts = [range(len(self.codes))] if self.case["attempt"] else []
        attempts.append(self.case["set"])
        texts = (text for attempt, set_ in enumerate(attempts) if me in set_
                 for text in self.plaintexts(attempt, me, set_))
        secret = bytes.fromhex(self.case["clients"][me]["pair_secret"])
        for number, text in enumerate(texts):
            yield sealed_message(self.session, secret, me, SERVER, number, text).hex()

    def distances(self):
        set_ = self.case["set"]
        return [[sum(p != q for p, q in zip(x, y)) for x in self.codes[j] for y in self.codes[k]]
                for at, j in enumerate(set_) for k in set_[at + 1:]]


def check_psm(case):
    run, good = Run(case), True
    for me, client in enumerate(case["clients"]):
        made = list(run.messages(me))[:len(client["messages"])]
        if made != client["messages"]:
            print(f"  messages of client {me} differ")
            good = False
        if me in case["set"] and len(list(run.messages(me))) != len(client["messages"]):
            print(f"  client {me} sends another number of messages")
            good = False
    return good and run.distances() == case["distances"]
