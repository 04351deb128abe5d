#!/usr/bin/env python3
"""The stages of `undertone bench pipeline` in NumPy and SciPy, each the fastest way found.

Needs numpy >= 2 and scipy. Set OPENBLAS_NUM_THREADS to the number of threads to compare with.
Prints one JSON object: milliseconds, medians over the repetitions.
"""
import argparse
import json
import time

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.sparse import csr_matrix, diags, identity
from scipy.sparse.linalg import splu

CLASSES = 10


def clusters(rows, dim, separation):
    rng = np.random.default_rng(2)
    truth = np.arange(rows) % CLASSES
    centres = rng.standard_normal((CLASSES, dim))
    features = rng.standard_normal((rows, dim)) + separation * centres[truth]
    return features.astype(np.float32), truth


def hashing(x, bits):
    pi = np.random.default_rng(1).standard_normal((bits, x.shape[1]), dtype=np.float32)
    return x @ pi.T >= 0


def distances_by_product(codes):
    signs = codes.astype(np.float32) * 2 - 1
    return ((codes.shape[1] - signs @ signs.T) / 2).astype(np.int16)


def distances_by_popcount(codes):
    words = np.packbits(codes, axis=1).view(np.uint64)
    out = np.empty((len(words), len(words)), np.int16)
    for i, row in enumerate(words):
        out[i] = np.bitwise_count(words ^ row).sum(axis=1, dtype=np.int16)
    return out


def graph(h, k, bits):
    n = len(h)
    np.fill_diagonal(h, np.iinfo(np.int16).max)
    near = np.argpartition(h, k, axis=1)[:, :k]
    weight = np.cos(np.pi * np.take_along_axis(h, near, 1) / bits).clip(0) ** 3
    b = csr_matrix((weight.ravel(), (np.repeat(np.arange(n), k), near.ravel())), (n, n))
    w = b + b.T
    scale = diags(1 / np.sqrt(np.maximum(np.asarray(w.sum(1)).ravel(), 1e-300)))
    return (scale @ w @ scale).tocsc()


def solve_sparse(w, columns):
    n = w.shape[0]
    return splu(identity(n, format="csc") - 0.99 * w).solve(np.eye(n, columns))


def solve_dense(w, columns):
    n = w.shape[0]
    return cho_solve(cho_factor(np.eye(n) - 0.99 * w.toarray()), np.eye(n, columns))


def solve_cg(w, columns):
    """All columns at once, to a relative residual of 1e-10."""
    w = w.tocsr()
    n = w.shape[0]
    x = np.zeros((n, columns))
    r = np.eye(n, columns)
    p = r.copy()
    rr = (r * r).sum(0)
    while rr.max() > 1e-20:
        q = p - 0.99 * (w @ p)
        step = rr / np.maximum((p * q).sum(0), 1e-300)
        x += step * p
        r -= step * q
        new = (r * r).sum(0)
        p = r + (new / np.maximum(rr, 1e-300)) * p
        rr = new
    return x


def best(repeat, ways, *args):
    times = {}
    for way in ways:
        runs = []
        for _ in range(repeat):
            start = time.perf_counter()
            out = way(*args)
            runs.append(1e3 * (time.perf_counter() - start))
        times[way.__name__] = sorted(runs)[len(runs) // 2]
    fastest = min(times, key=times.get)
    return out, {"way": fastest, "ms": times[fastest], "all": times}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=2500)
    parser.add_argument("--features", type=int, default=128)
    parser.add_argument("--bits", type=int, default=4096)
    parser.add_argument("--neighbours", type=int, default=10)
    parser.add_argument("--labelled", type=int, default=250)
    parser.add_argument("--separation", type=float, default=0.3)
    parser.add_argument("--repeat", type=int, default=3)
    a = parser.parse_args()
    x, _ = clusters(a.rows, a.features, a.separation)
    codes, hashed = best(a.repeat, [hashing], x, a.bits)
    h, measured = best(a.repeat, [distances_by_popcount, distances_by_product], codes)
    w, joined = best(a.repeat, [graph], h, a.neighbours, a.bits)
    _, solved = best(a.repeat, [solve_sparse, solve_dense, solve_cg], w, a.labelled)
    stages = {"hashing": hashed, "distances": measured, "top-k and graph": joined, "solve": solved}
    total = sum(s["ms"] for s in stages.values())
    print(json.dumps({"stages": stages, "total_ms": total}, indent=1))


if __name__ == "__main__":
    main()
