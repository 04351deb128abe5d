"""Both sides of punctured trees, of which the receiver gets every leaf but one:
docs/spec/punctured.md."""
import functools

from .primitives import aes128, need, number, pieces, xor
from .transfers import Extension, batch_words, block, check_proof, mmo, total, whole


def depth(leaves):
    return (leaves - 1).bit_length()


def path(leaves, leaf):
    """The side of a leaf on each level; 0 if the last level is missing."""
    levels = depth(leaves)
    last = 2 * leaves - 2**levels  # so many leaves are on it
    place = leaf if leaf < last else 2 * leaf - last
    return [place >> level & 1 for level in reversed(range(levels))]


def parents(leaves, level):
    """The number of nodes of the previous level that have children."""
    levels = depth(leaves)
    return leaves - 2**(levels - 1) if level == levels - 1 else 2**level


def children(pi, nodes):
    """Both children of each node; None for the children of an unknown node."""
    made = [iter(pieces(mmo(key, b"".join(filter(None, nodes))), 16)) for key in pi]
    return [next(side) if node else None for node in nodes for side in made]


def sums(nodes):
    """The sum of the known left nodes, and that of the known right nodes."""
    return [total(b"".join(filter(None, nodes[side::2]))) for side in range(2)]


def grow(pi, leaves, keys):
    """The sender's tree: all leaves and the corrections, from two keys for each level."""
    nodes, corrections = keys[0], b""
    for level, pair in enumerate(keys[1:], 1):
        count = parents(leaves, level)
        made = children(pi, nodes[:count])
        corrections += b"".join(map(xor, sums(made), pair))
        nodes = made + nodes[count:]
    return nodes, corrections


def opened(pi, leaves, missing, keys, corrections):
    """The receiver's tree: all leaves but one, from one key for each level. It is the key of the
    side that the path avoids."""
    first, *rest = path(leaves, missing)
    nodes, at = [None if side == first else keys[0] for side in range(2)], first
    levels = zip(rest, keys[1:], pieces(corrections, 32), strict=True)
    for level, (side, key, pair) in enumerate(levels, 1):
        count = parents(leaves, level)
        made = children(pi, nodes[:count])
        if at < count:
            known = sums(made)[1 - side]
            made[2 * at + 1 - side] = xor(xor(pieces(pair, 16)[1 - side], key), known)
            at = 2 * at + side
        else:
            at += count
        nodes = made + nodes[count:]
    return nodes


def words(leaves, count):
    """The first words of 32 bits of the stream of each leaf."""
    blocks = -(-count // 4)
    counters = b"".join(map(block, range(blocks)))
    data = aes128(b"".join(leaf * blocks for leaf in leaves), counters * len(leaves))
    return [
        list(map(number, pieces(stream[:4 * count], 4))) for stream in pieces(data, 16 * blocks)
    ]


class Trees:
    """A tree for each missing leaf, and all messages about them, with one batch of transfers."""

    def __init__(self, session, purpose, sender, receiver, seeds, leaves, missing):
        self.made = made = Extension(session, purpose, sender, receiver, seeds, 4, True)
        wanted = [1 - side for leaf in missing for side in path(leaves, leaf)]
        self.count, levels = len(wanted), depth(leaves)
        self.corrections, self.leaves, self.known = b"", [], []
        if not wanted:
            return
        self.batch = batch = made.batch(self.count)
        self.changes = whole(batch.choices ^ sum(bit << t for t, bit in enumerate(wanted)),
                             self.count)
        received = pieces(made.randomise(batch.chosen, 0), 16)
        both = [pieces(made.randomise(keys, 0), 16) for keys in (batch.zeros, batch.ones)]
        changes = [number(self.changes) >> t & 1 for t in range(self.count)]
        ordered = [[both[d][t], both[1 - d][t]] for t, d in enumerate(changes)]
        pi = [made.context.permutation("punctured", i) for i in range(2)]
        for leaf, keys, chosen in zip(missing, pieces(ordered, levels), pieces(received, levels),
                                      strict=True):
            grown, corrections = grow(pi, leaves, keys)
            self.leaves.append(grown)
            self.known.append(opened(pi, leaves, leaf, chosen, corrections))
            self.corrections += corrections

    def differences(self, missing):
        """The receiver knows the sender's leaves, except for the missing ones."""
        due = [[None if x == leaf else node for x, node in enumerate(grown)]
               for leaf, grown in zip(missing, self.leaves, strict=True)]
        yield "leaves the receiver knows", self.known, due

    def check_proof(self, data):
        due = 40 + len(self.changes)
        need(len(data) == due, f"proofs and choices of {len(data)} bytes, {due} are due")
        batch, words_ = self.batch, batch_words(self.count, True)
        check_proof(number(batch.challenge), self.made.delta, batch.ws, data[:40], 0, words_)


@functools.cache
def trees(*arguments):
    return Trees(*arguments)
