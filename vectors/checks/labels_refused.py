"""The refusals of label propagation: each message, as its receiver checks it."""
from . import curve
from .influence import check_plan, read_own_rows
from .labels import DISTANCES, INFLUENCE, OFFLINE, SETUP, Run, label_case
from .messages import Reader, check_roster, hello_alone, opened
from .primitives import SERVER, Refused, need, number, pieces, unhex
from .reasons import blame, refused_by
from .sums import KEYS
from .transfers import base_reply, reply_point

GRAPH = 5


class SetupChecks:
    def __init__(self, run):
        self.run = run

    def check_hello(self, place, data):
        """The server's check, the clients' checks of the roster in order, then those of
        parameters."""
        run = self.run
        try:
            _, advertisement, _ = hello_alone(data, 1)
        except Refused as refusal:
            raise Refused(str(refusal), SERVER, SETUP, [place]) from None
        changed = run.roster(
            [data if other == place else mine for other, mine in enumerate(run.hellos)])
        for other in run.everybody:
            self.check_roster(other, changed)
        self.check_advertisement(place, advertisement)

    def check_advertisement(self, place, advertisement):
        same = advertisement[4:] == self.run.advertisement(place)[4:]
        need(same and number(advertisement[:4]) <= 2**24, "other parameters", SERVER, SETUP,
             [place])

    def check_roster(self, me, data):
        run = self.run
        pinned = {place: curve.ed_public(key) for place, key in enumerate(run.identities) if key}
        try:
            entries = check_roster(data[32:], 1, me, run.hellos[me], run.session, "sign setup",
                                   pinned)
            need(len(entries) >= run.min_clients, "too few clients")
        except Refused as refusal:
            raise Refused(str(refusal), me, SETUP, [SERVER]) from None

    def blaming(self, party, phase, culprit, check, *arguments):
        try:
            return check(*arguments)
        except Refused as refusal:
            raise Refused(str(refusal), party, phase, [culprit]) from None

    def check_contributions(self, place, data):
        others, run = self.run.others(place), self.run
        parts = pieces(data, len(run.contribution(place, others[0])))
        due = sum(len(run.contribution(place, other)) for other in others)
        need(len(data) == due, f"{len(data)} bytes, {due} are due", SERVER, SETUP, [place])
        for other, part in zip(others, parts):
            self.open(other, place, part)

    def open(self, me, other, data):
        if self.run.is_sealed:
            pair = self.run.pair(other, me)
            self.blaming(me, SETUP, other, opened, self.run.session, pair, other, me, 0, data)

    def check_contributions_received(self, me, data):
        run = self.run
        reader, parts = Reader(data), []
        try:
            there = [reader.below(1, 2) for _ in run.everybody]
            need(there[me], "the receiver is not in the set")
            need(sum(there) >= run.min_clients, "too few clients")
            others = [other for other in run.others(me) if there[other]]
            parts = [reader.take(len(run.contribution(other, me))) for other in others]
            reader.end()
        except Refused as refusal:
            raise Refused(str(refusal), me, SETUP, [SERVER]) from None
        for other, part in zip(others, parts):
            self.open(me, other, part)

    def check_setup(self, from_, to, kind, data):
        checks = {"hello": self.check_hello, "roster": self.check_roster,
                  "contributions": self.check_contributions if to == SERVER else
                                   self.check_contributions_received}
        checks[kind](min(from_, to), data)


class Checks(SetupChecks):
    def check_own_rows(self, place, data):
        rows = len(self.run.given[place])
        out = self.blaming(SERVER, DISTANCES, place, read_own_rows, data, rows, self.run.k,
                           self.run.bits)
        flagged, announced = sum(labelled for labelled, _ in out), len(self.run.trees[place].leaves)
        need(flagged == announced, "other labelled rows than announced", SERVER, GRAPH, [place])

    def check_codes(self, place, data):
        due = len(self.run.given[place]) * -(-self.run.bits // 8)
        need(len(data) == due, f"codes of {len(data)} bytes, {due} are due", SERVER, DISTANCES,
             [place])

    def same_length(self, due, data):
        need(len(data) == len(due), f"{len(data)} bytes, {len(due)} are due")

    def check_trees(self, kind, from_, to, data):
        """A message about the trees, as its receiver checks it."""
        place = min(from_, to)
        made, context = self.run.trees[place], self.run.trees[place].made.context
        try:
            if kind == "points":
                base_reply(context, data, bytes(32))
            elif kind == "labelled rows":
                reader = Reader(data)
                reader.below(4, len(self.run.given[place]) + 1)
                self.same_length(made.made.setup, reader.data)
                reply_point(reader.take(32))
            elif kind == "proofs":
                made.check_proof(data)
            else:
                due = {"corrections": made.batch.corrections,
                       "challenges": made.batch.challenge,
                       "trees": made.corrections}
                self.same_length(due[kind], data)
        except Refused as refusal:
            raise Refused(str(refusal), to, OFFLINE, [from_]) from None

    def check_plan(self, me, data):
        """The client's check, then the server's check of the rows that the client claims in the
        sum."""
        run = self.run
        rows = len(run.labelled(me)), len(run.unlabelled(me))
        check_plan(me, data, rows, sum(map(len, run.given)), run.classes)
        need(data == run.plan(me), "other rows than the client has", SERVER, KEYS, [me])

    def check_columns(self, me, data):
        due = 4 * len(self.run.unlabelled()) * len(self.run.labelled(me))
        need(len(data) == due, f"{len(data)} bytes of columns, {due} are due", me, INFLUENCE,
             [SERVER])

    def check(self, from_, to, kind, data):
        checks = {"own rows": self.check_own_rows, "codes": self.check_codes,
                  "plan": self.check_plan, "columns": self.check_columns}
        if kind in ("hello", "roster", "contributions"):
            self.check_setup(from_, to, kind, data)
        elif kind in checks:
            checks[kind](min(from_, to), data)
        else:
            self.check_trees(kind, from_, to, data)


def label_refused(vectors, entry):
    """A refused case. Every message is one tile."""
    run = Run(vectors["cases"][entry["case"]])
    link = entry["from"], entry["to"]
    due, _ = run.links()
    phase, kind, honest = due[link][entry["number"]]
    frame, changed = run.frames[link][entry["number"]], unhex(entry["payload"])
    yield "the honest payload", frame["payload"], honest.hex()
    yield "one payload for another", changed != honest, True
    yield "it is refused in the message's phase or later", entry["phase"] >= phase, True
    check = Checks(run).check
    refusal = refused_by(entry, check, (*link, kind, honest), (*link, kind, changed))
    yield from blame(refusal, entry)


CHECKS = {f"label-{name}": (label_case, label_refused)
          for name in ("clear", "lwe", "phe", "psm", "shade", "signed", "sketch", "wine")}
