"""The server's graph, the influence of labelled rows, and labels from scores."""
import math

from .messages import Reader
from .primitives import SERVER, Refused, need


def nearest(distances, k):
    """The k smallest pairs of (distance, number). Ties go to the smaller number."""
    return sorted(distances)[:k]


def neighbours(codes, k):
    """For each row its neighbours as (distance, global id), nearest first. Codes are numbers."""
    return [nearest([((x ^ y).bit_count(), i) for i, y in enumerate(codes) if i != at], k)
            for at, x in enumerate(codes)]


def weights(graph, bits, variant):
    """𝒲, row after row."""
    n = len(graph)
    w = [[0.0] * n for _ in graph]
    for at, near in enumerate(graph):
        for h, other in near:
            if 2 * h < bits:
                weight = math.cos(math.pi * h / bits)**(3 if variant == "balanced" else 1)
                w[at][other] += weight
                w[other][at] += weight
    roots = [math.sqrt(sum(row)) for row in w]
    return [[x and x / (roots[i] * roots[j]) for j, x in enumerate(row)] for i, row in enumerate(w)]


def influence(w, alpha, rows):
    """Columns of (I − α𝒲)⁻¹ by elimination. The matrix is positive definite."""
    n = len(w)
    a = [[(i == j) - alpha * x for j, x in enumerate(row)] + [float(i == r) for r in rows]
         for i, row in enumerate(w)]
    for i in range(n):
        pivot = a[i]
        for below in a[i + 1:]:
            if factor := below[i] / pivot[i]:
                below[i:] = [x - factor * y for x, y in zip(below[i:], pivot[i:])]
    columns = []
    for c in range(n, n + len(rows)):
        x = [0.0] * n
        for i in reversed(range(n)):
            row = a[i]
            x[i] = (row[c] - sum(row[j] * x[j] for j in range(i + 1, n))) / row[i]
        columns.append(x)
    return columns


def outcome(scores):
    """The label and the confidence that follow from a row's scores."""
    total = sum(scores)
    if not any(scores):
        return -1, 0.0
    entropy = -sum(z / total * math.log(z / total) for z in scores if z)
    return scores.index(max(scores)), 1 - entropy / math.log(len(scores))


def read_own_rows(data, count, k, bits):
    """For each row whether it is labelled, and its nearest rows as (distance, row)."""
    reader, out = Reader(data), []
    for row in range(count):
        labelled, near = reader.below(1, 2), []
        for _ in range(min(k, count - 1)):
            other = reader.below(4, count)
            near.append((reader.number(2), other))
        others = {other for _, other in near}
        need(row not in others and len(others) == len(near), "neighbours are other rows, each once")
        need(near == sorted(near, key=lambda pair: pair[0]), "nearest first")
        need(all(h <= bits for h, _ in near), "a distance above L")
        out.append((labelled, near))
    reader.end()
    return out


def check_plan(me, data, rows, all_rows, classes):
    """Checks LABEL-11 to LABEL-14. `rows` are the client's numbers of labelled and unlabelled
    rows."""
    try:
        reader = Reader(data)
        u, first = reader.number(4), reader.number(4)
        reader.end()
        need(u + rows[0] <= all_rows, "more unlabelled rows than there are")
        need(first + rows[1] <= u, "rows that are not among them")
        need(u * classes <= 2**27, "more words than may be")
    except Refused as refusal:
        raise Refused(str(refusal), me, 6, [SERVER]) from None
