"""Five clinics with classifiers of different kinds, co-trained by votes on public records.

Each clinic has few records of its own, with diagnoses. Records without diagnoses are public. The
clinics' classifiers vote on the public records; nobody sees a vote, and the consensus becomes the
diagnosis from which all learn. All parties run in this process with the real messages.

    pip install '.[sklearn]'
    python examples/python/cotrain.py data/breast_cancer.npz
"""

import argparse

import numpy as np
from sklearn.ensemble import GradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier

import undertone


def learners(seed):
    """A classifier for each clinic."""
    return [
        RandomForestClassifier(random_state=seed),
        LogisticRegression(max_iter=1000),
        DecisionTreeClassifier(random_state=seed),
        GradientBoostingClassifier(random_state=seed),
        SVC(),
    ]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", help="breast_cancer.npz")
    parser.add_argument("--rows", type=int, default=16, help="records of each clinic")
    parser.add_argument("--votes", default="winners", help="winners, counts or clear")
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()

    with np.load(options.file) as file:
        rows, truth = file["features"].astype(float), file["labels"].astype(int)
    scores = []
    for seed in range(options.runs):
        order = np.random.default_rng(seed).permutation(len(truth))
        tests, public, own = np.split(order, [114, 114 + 300])
        # One scale for all, from the public records.
        scaled = (rows - rows[public].mean(axis=0)) / rows[public].std(axis=0)
        alone = learners(seed)
        parts = np.split(own[: len(alone) * options.rows], len(alone))
        data = [(scaled[part], truth[part]) for part in parts]
        for learner, (X, y) in zip(alone, data):
            learner.fit(X, y)
        run = undertone.cotrain(data, scaled[public], learners(seed), votes=options.votes)
        right = [
            np.mean([learner.score(scaled[tests], truth[tests]) for learner in group])
            for group in (alone, run.learners)
        ]
        scores.append(right)
        labels = np.mean(run.labels == truth[public])
        print(f"run {seed}: {len(run.exchanges)} exchanges, {labels:.1%} of the labels are right")
    for name, mean in zip(("alone", "co-trained"), np.mean(scores, axis=0)):
        print(f"{name:10} {mean:.1%} of the test records are right (mean of the clinics)")


if __name__ == "__main__":
    main()
