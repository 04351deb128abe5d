"""Whether an input is refused, and for the reason that the vectors give."""
import re

from .primitives import Refused

# Left the words of the vectors, right the words of the checks here. The first match counts.
REASONS = [(re.compile(held), re.compile(made)) for held, made in (
    (r"^frame header:", "header that is cut"),
    (r"the header announces", "payload of another length"),
    (r"at most \d+ are accepted", "payload that is too long"),
    (r"an abort with a payload", "abort with a payload"),
    (r"not an Undertone frame", "no frame of version 1"),
    (r"\d+ bytes|\d+ are due", r"\d+ bytes|another length"),
    (r"not canonical", "not canonical"),
    (r"low order", "low order"),
    (r"not an Ed25519 key", "low order|no point of Ed25519"),
    (r"not an acceptable Ristretto point", "no canonical point's|no point's|the identity"),
    (r"trees of seeds", "trees are not consistent"),
    (r"have different choices", "corrections of other choices"),
    (r"it must be from", "is beyond"),
    (r"occurs twice", "a key twice"),
    (r"do(es)? not open$", "does not open|shorter than a tag"),
    (r"keys for client (\d+) are not signed", "has not signed|signature that does not fit"),
    (r"the signature does not fit",
     "signature that does not fit|not below the order|low order|no point of Ed25519"),
    (r"this client's keys and advertisement", "lacks the receiver's hello"),
    (r"another client's, too|same key|a key that was there before", "a key twice"),
    (r"repeats a client", "out of order"),
    (r"number of clients is", "more clients than there is room for"),
    (r"number of features is", "a number of features that"),
    (r"which is outside", "is not below"),
    (r"repeat, are out of order", "other rows, each once|nearest first|above L"),
    (r"differ from the server's", "other rules|other rows"),
    (r"and announced \d+", "labelled rows than announced"),
    (r"sums of features that no rows have", "sums that no rows have"),
    (r"more unlabelled rows than there are", "more unlabelled rows than there are"),
    (r"shares a factor", "shares a factor"),
    (r"is not below N", "not below N"),
    (r"divisible by", "divisible by"),
    (r"from 2048 to 4096|not of 2048", "from 2048 to 4096"),
    (r"primes must differ", "one prime twice|two lengths"),
    (r"a factor that is not prime", "a factor that is not prime"),
    (r"in a slot of", "a value that is too long"),
    (r"values in \d+ slots", "more values than slots"),
    (r"as \d+ values of", "beyond the last slot"),
    (r"leaves this client out", "receiver is not in the set"),
    (r"beyond the roster", "beyond the roster"),
    (r"not whole groups", "groups that are not whole"),
    (r"too few clients", "too few clients"),
    (r"a share of the wrong kind", "of the wrong kind"),
    (r"what it committed to", "do not give back"),
    (r"give a distance above", "above L"),
    (r"sums are missing", "are missing"),
    (r"offers were changed on the way", "another hash"),
    (r"with which it has no distances", "with whom there are none"),
    (r"not UTF-8", "not UTF-8"),
    (r"its name is too long", "a name or a shape is too long"),
    (r"too many values", "too many values"),
    (r"it comes twice", "a name comes twice"),
    (r"it has no values", "no values"),
    (r"not that of the session", "another round than that of the session"),
    (r"another number of rounds", "another number of rounds"),
    (r"or leaves one out", "not due, or none where one is"),
    (r"not that of the last round", "not of the last round"),
    (r"not that of the round", "not of this round"),
    (r"other contributors than the sum", "of others than the sum"),
    (r"of fewer clients", "of too few clients"),
    (r"clients in ascending order", "clients in ascending order"),
    (r"its mean has no weight", "without a weight"),
    (r"arrays are not those of the round", "other arrays than the others'"),
    (r"masking bit that is neither 0 nor 1", "a bit that is not below 2"),
    (r"answers after the last", "answers after the last"),
    (r"openings after the last", "openings after the last"),
    (r"kind of the session", "is not below [23]"),
    (r"groups are not those", "groups of other clients"),
    (r"names another job", "another census"),
    (r"starts a round that is over", "a round that is not due"),
    (r"name different groups", "name other groups"),
    (r"instances or its audience is another", "another circuit"),
    (r"it must be 0 or 1", "is not below 2"),
    (r"a label is no class", "a label that is no class"),
    (r"a label that is no class", "a label that is no class"),
    (r"a vote for class", "a vote for class"),
    (r"a message that is not empty", "a message that is not empty"),
    (r"starts an exchange that is over", "an exchange that is not due"),
    (r"slices: they are not in ascending order", "slices out of order"),
    (r"its plan names a slice", "a plan of other slices or helpers"),
    (r"set of contributors has grown", "contributors that were not in"),
    (r"is all of them", "quorum is all of them"),
    (r"it sent step \d+, kind \d+", "a tile of another number"),
    (r"its job differs", "a hello of another job"),
    (r"it starts the run anew", "it starts anew"),
    (r"which not all clients have", "a step that not all have"),
    (r"in order, each once", "tags that do not ascend"),
    (r"their labels differ", "their labels differ"),
    (r"it has no clusters", "there are no clusters"),
    (r"those of its rows and of its dummies", "not those of rows and dummies"),
    (r"names a cell twice", "names a cell twice"),
    (r"not on the roster, or is out of order", "not in the setup, or out of order"),
    (r"sizes of cells that its rows cannot have", "sizes that its rows cannot have"),
    (r"other sizes of cells than its own", "sizes that are not those of the receiver"),
    (r"not a finite number", "a value that is not finite"),
)]


def same_reason(held, made):
    """Whether the reasons are the same, including the numbers of bytes, or of clients, if both give
    two."""
    numbered = [text for text in (held, made) if re.search("are due|name .* groups", text)]
    counts = [sorted(re.findall(r"\d+", text)) for text in numbered]
    if len(counts) == 2 and counts[0] != counts[1]:
        return False
    return next((bool(other.search(made)) for one, other in REASONS if one.search(held)), False)


def refused_by(entry, check, honest, changed):
    """The refusal of the changed input, by a check that accepts the honest one."""
    check(*honest)
    try:
        check(*changed)
    except Refused as refusal:
        if same_reason(entry["check"], str(refusal)):
            return refusal
        raise ValueError(f"refused because of: {refusal}") from None
    raise ValueError("it is not refused")


def blame(refusal, entry):
    """Compares who refuses, when, and who is to blame, in any order."""
    yield "who refuses", refusal.party, entry["party"]
    yield "the phase", refusal.phase, entry["phase"]
    yield "culprits", sorted(refusal.culprits), sorted(entry["culprits"])
