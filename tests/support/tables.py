"""Small data and methods for the tests of tables."""

import numpy as np
from sklearn.utils import Bunch

from regbayes import datasets, reproduce
from regbayes.reproduce import Options
from regbayes.reproduce.experiment import Method
from regbayes.reproduce.topics import TopicClustering

FAST = Options(fast=True)


def parkinsons(folder, num_subjects=20, subjects=True):
    """Data in the file's format: half of the speakers are ill and two features say so."""
    rng = np.random.default_rng(0)
    subject = np.repeat(np.arange(num_subjects), 4)
    y = subject % 2
    X = rng.normal(size=(len(y), 22)) + np.pad(3 * y[:, None] * np.ones(2), ((0, 0), (0, 20)))
    columns = {"subject": subject} if subjects else {}
    np.savez(folder / "parkinsons.npz", X=X.astype(np.float32), y=y.astype(np.int8), **columns)


NUM_SWEEPS = 30


def topic_clustering(program, **settings):
    """One compiled chain serves all tests of small documents."""
    settings = {"num_topics": 4, "num_warmup": 0, "num_samples": NUM_SWEEPS, **settings}
    return Method(lambda seed: TopicClustering(program, random_state=seed, **settings))


def small_corpus(monkeypatch):
    """In place of all documents that a table would load."""
    X, y, _ = datasets.make_corpus(120, 60, num_topics=4, alpha_1=1.0, seed=1)
    monkeypatch.setattr(reproduce.topics.datasets, "load", lambda name, home: Bunch(X=X, y=y))
    monkeypatch.setattr(reproduce.topics, "FAST_NUM_DATA", 100)
