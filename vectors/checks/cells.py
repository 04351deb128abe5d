"""Cells of rows: noise, sums, centres, sizes, and the refusals. See docs/spec/cells.md."""
import hashlib
import math
import struct

from .labels import SETUP, Setup, depth_differences, frame_differences, tiles
from .labels_refused import SetupChecks
from .libm import exp, log
from .messages import Reader
from .primitives import (SERVER, Refused, Stream, derive, double, hexed, ids, need, number, pieces,
                         unhex)
from .reasons import blame, refused_by
from .series import ALL, Block, Series, Sum, check_tile
from .sharing import signed

CELLS = 29
ROUNDS, UNIT, SHIFT = 4, 65535, 0.3


# Noise.

def loss(rho, epsilon):
    """λ(ρ)."""
    def at(x):
        over = exp(x)
        alpha = 1.0 + over
        return over * (alpha * rho - epsilon) - x + alpha * math.log1p(-1.0 / alpha)

    low, high = log(1e-4), log(1e7)
    for _ in range(200):
        third = (high - low) / 3.0
        if at(low + third) < at(high - third):
            high -= third
        else:
            low += third
    return at((low + high) / 2.0)


def concentrated(epsilon, delta):
    """ρ."""
    low, high = 0.0, epsilon
    for _ in range(100):
        if high - low < 1e-12:
            break
        middle = (low + high) / 2.0
        if loss(middle, epsilon) <= log(0.9 * delta):
            low = middle
        else:
            high = middle
    return low / 2.0


class Noise:
    def __init__(self, cells, probes, epsilon, clients, rows, dim):
        delta = 1.0 / (10.0 * rows)
        rho = concentrated(epsilon, delta)
        unknown = max(1, clients - 1 - clients // 10)
        s = math.sqrt(2.0 * (ROUNDS + 1) / rho) / math.sqrt(unknown)
        self.sigma = math.ceil(2.0**16 * s)
        self.length = s * math.sqrt(clients * dim)
        self.size_sigma = math.ceil(math.sqrt(probes / rho))
        tail = 0.1 * delta / (4.0 * probes * (1.0 + exp(epsilon)))
        self.dummies = math.ceil(self.size_sigma * math.sqrt(-2.0 * log(tail)))
        need(rows >= 200 * cells and 3.0 * self.length <= rows // cells and self.sigma <= 2**28,
             "too few rows for the cells and the noise")


class Gaussians:
    """Samples of discrete Gaussians from a stream."""

    def __init__(self, seed):
        self.words = Stream(seed)

    def below(self, b):
        kept = 2**max(1, (b - 1).bit_length())
        while True:
            x = number(self.words.read(8 if b <= 2**64 else 16)) % kept
            if x < b:
                return x

    def coin(self, x, y):
        while x > y:
            if not self.coin(1, 1):
                return False
            x -= y
        k = 1
        while self.below(y * k) < x:
            k += 1
        return k % 2 == 1

    def sample(self, sigma):
        t, square = sigma + 1, sigma**2
        while True:
            u, v = self.below(t), 0
            if not self.coin(u, t):
                continue
            while self.coin(1, 1):
                v += 1
            x, negative = u + t * v, self.below(2)
            if v >= 64 or negative and not x:
                continue
            if self.coin((x * t - square)**2, 2 * square * t**2):
                return -x if negative else x


# Centres.

def dot(a, b):
    """In order: from Python 3.12 on `sum` compensates for rounding."""
    total = 0.0
    for x, y in zip(a, b, strict=True):
        total += x * y
    return total


def norm(values):
    return math.sqrt(dot(values, values))


def divided(values, by):
    return [x / by for x in values]


def unit_row(row):
    largest = max(map(abs, row))
    scaled = divided(row, largest)
    return divided(scaled, norm(scaled))


def nearest(row, centres, offsets):
    """All cells, nearest first."""
    close = [dot(row, centre) - offset for centre, offset in zip(centres, offsets, strict=True)]
    return sorted(range(len(close)), key=lambda cell: (-close[cell], cell))


class Centres:
    def __init__(self, seed, cells, dim, rows, length):
        self.words, self.dim, self.rows, self.length = Stream(seed), dim, rows, length
        self.centres, self.offsets = [None] * cells, [0.0] * cells

    def direction(self, length):
        words = [number(self.words.read(8)) for _ in range(self.dim)]
        values = [2.0 * ((word >> 11) * 2.0**-53) - 1.0 for word in words]
        scale = length / norm(values)
        return [x * scale for x in values]

    def learn(self, step, words):
        """Takes the sum of a round."""
        values = [signed(word, 64) / UNIT for word in words]
        if step == 0:
            mean = divided(values, self.rows)
            self.centres = [self.direction(1.0) for _ in self.centres]
            self.offsets = [dot(centre, mean) for centre in self.centres]
            return
        sums = pieces(values, self.dim)
        norms = list(map(norm, sums))
        self.centres = [divided(values, r) if r else centre
                        for values, r, centre in zip(sums, norms, self.centres, strict=True)]
        self.offsets = [0.0] * len(sums)
        if step < ROUNDS:
            self.split(norms)

    def split(self, norms):
        least = max(2.0 * self.length, sorted(norms)[len(norms) // 2] / 5.0)
        for i in [i for i, r in enumerate(norms) if r < least]:
            j = norms.index(max(norms))
            if i == j:
                continue
            v = self.direction(SHIFT)
            norms[j] /= 2.0
            norms[i] = norms[j]
            both = list(zip(self.centres[j], v, strict=True))
            for cell, moved in ((i, [c - x for c, x in both]), (j, [c + x for c, x in both])):
                self.centres[cell] = divided(moved, norm(moved))

    def order(self, row):
        return nearest(row, self.centres, self.offsets)


# Runs.

class Cells(Setup):
    """A session without drop-outs: the setup, then the phase of cells."""

    def __init__(self, case):
        held = case["cells"]
        job = {"cells": held["cells"], "probes": held["probes"], "cells_epsilon": held["epsilon"]}
        sizes = [len(client["features"]) for client in case["clients"]]
        super().__init__(case | {"parameters": case["parameters"] | job}, sizes, True)
        self.cells, self.probes = held["cells"], held["probes"]
        rows = [[list(map(double, row)) for row in client["features"]] for client in self.clients]
        self.rows = [list(map(unit_row, own)) for own in rows]
        self.noise = Noise(self.cells, self.probes, double(held["epsilon"]), len(rows), sum(sizes),
                           self.dim)
        own = [self.derive(self.later(place), "cells") for place in self.everybody]
        common = self.derive(self.bound, "cells")
        self.centres = Centres(self.derive(common, "centres"), self.cells, self.dim, sum(sizes),
                               self.noise.length)
        members, heard = list(self.everybody), bytes(32)
        after = lambda purpose: [Gaussians(derive(seed, self.session, purpose, heard))
                                 for seed in own]
        self.sums = []
        for step in range(ROUNDS + 1):
            self.on_sums = after("noise on sums")
            words = dict(enumerate(self.words(place, step) for place in members))
            blocks = [Block(ALL, len(words[0]), members)]
            series = Series(derive(common, self.session, "series", heard), "cells", self.suite,
                            members, self.pair, self.group, self.session)
            self.sums.append(Sum(series, (step, 0), 8, blocks, words))
            sums = self.sums[-1].opened(0)
            heard = hashlib.sha256(heard + struct.pack(f"<{len(sums)}Q", *sums)).digest()
            self.centres.learn(step, sums)
        self.named = [[self.centres.order(row)[:self.probes] for row in own] for own in self.rows]
        self.counts = list(map(self.count, self.named))
        self.slots = [self.sizes_of(*both) for both in enumerate(after("noise on sizes"))]

    def count(self, named):
        """How many of a client's rows name each cell."""
        return [sum(cell in near for near in named) for cell in range(self.cells)]

    def words(self, place, step):
        """What a client adds to a sum."""
        out = [0] * (self.dim * (self.cells if step else 1))
        for row in self.rows[place]:
            start = self.dim * self.centres.order(row)[0] if step else 0
            for at, x in enumerate(row, start):
                out[at] += int(x * UNIT)
        return [word + self.on_sums[place].sample(self.noise.sigma) for word in out]

    def sizes_of(self, place, noise):
        most = self.noise.dummies
        extra = [noise.sample(self.noise.size_sigma) for _ in range(self.cells)]
        return [count + most + max(-most, min(most, more))
                for count, more in zip(self.counts[place], extra, strict=True)]

    def links(self):
        """All messages by link, as phase, kind and payload."""
        out = {}
        for place in self.everybody:
            named = [struct.pack(f"<{self.probes}H", *near) for near in self.named[place]]
            to = [("words", tile) for made in self.sums for tile in made.from_client(place)]
            to.append(("sizes", ids(*self.slots[place])))
            to += [("cells", tile) for tile in (tiles(named) if named else [])]
            back = [("words", tile) for made in self.sums for tile in made.to_client(place)]
            back.append(("clients", ids(*self.everybody)))
            back += [("all sizes", ids(*slots)) for slots in self.slots]
            out[place, SERVER] = [(SETUP, "hello", self.hellos[place]),
                                  (SETUP, "contributions", self.contributions_of(place)),
                                  *((CELLS, *message) for message in to)]
            out[SERVER, place] = [(SETUP, "roster", self.roster()),
                                  (SETUP, "contributions", self.admission(place)),
                                  *((CELLS, *message) for message in back)]
        return out


def cells_case(case):
    run, noise = Cells(case), case["noise"]
    yield "σ", run.noise.sigma, noise["sum_sigma"]
    yield "ℓ", hexed(run.noise.length), noise["length"]
    yield "σ'", run.noise.size_sigma, noise["size_sigma"]
    yield "m", run.noise.dummies, noise["more"]
    for made in run.sums:
        yield from made.differences()
    yield from frame_differences(case["frames"], run.links())
    yield "all payloads", all(frame.get("payload") is not None for frame in case["frames"]), True
    yield from depth_differences(case["frames"])


class Checks(SetupChecks):
    """The checks of the receivers. All cells of a client are in one message."""

    def check_sizes(self, place, data):
        run, reader = self.run, Reader(data)
        most = run.sizes[place] + 2 * run.noise.dummies
        sizes = [reader.below(4, most + 1) for _ in range(run.cells)]
        reader.end()
        self.check_dummies(place, sizes, run.counts[place])

    def check_cells(self, place, data):
        run, reader = self.run, Reader(data)
        named = [[reader.number(2) for _ in range(run.probes)] for _ in run.rows[place]]
        reader.end()
        need(all(len(set(near)) == run.probes and max(near) < run.cells for near in named),
             "a row that names a cell twice, or one that is not there")
        self.check_dummies(place, run.slots[place], run.count(named))

    def check_dummies(self, place, sizes, counts):
        most = 2 * self.run.noise.dummies
        need(all(0 <= size - count <= most for size, count in zip(sizes, counts, strict=True)),
             "sizes that are not those of rows and dummies")

    def check_clients(self, me, data):
        run, reader, there = self.run, Reader(data), []
        while reader.data:
            there.append(reader.number(4))
        need(there == sorted(set(there) & set(run.everybody)),
             "clients that are not in the setup, or out of order")
        need(me in there, "the receiver is not in the set")
        return there

    def check_all_sizes(self, me, place, data):
        run, reader = self.run, Reader(data)
        sizes = [reader.number(4) for _ in range(run.cells)]
        reader.end()
        extra = sum(sizes) - run.probes * run.sizes[place]
        need(0 <= extra <= 2 * run.noise.dummies * run.cells, "sizes that its rows cannot have")
        need(place != me or sizes == run.slots[me], "sizes that are not those of the receiver")

    def check(self, from_, to, nth, data):
        place, link = min(from_, to), self.run.links()[from_, to]
        phase, kind, honest = link[nth]
        if phase == SETUP:
            return self.check_setup(from_, to, kind, data)
        check, *arguments = {
            "words": (check_tile, honest),
            "sizes": (self.check_sizes, place),
            "cells": (self.check_cells, place),
            "clients": (self.check_clients, place),
            "all sizes": (self.check_all_sizes, place, nth - len(link) + len(self.run.clients)),
        }[kind]
        there = self.blaming(to, phase, from_, check, *arguments, data)
        if kind == "clients":
            need(len(there) >= self.run.min_clients, "too few clients", to, phase)


def cells_refused(vectors, entry):
    run, link = Cells(vectors["cases"][entry["case"]]), (entry["from"], entry["to"])
    honest, changed = run.links()[link][entry["number"]][2], unhex(entry["payload"])
    yield "one payload for another", changed != honest, True
    message = *link, entry["number"]
    refusal = refused_by(entry, Checks(run).check, (*message, honest), (*message, changed))
    yield from blame(refusal, entry)


CHECKS = {"cells": (cells_case, cells_refused)}
