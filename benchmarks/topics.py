"""Race the samplers of topic models against tomotopy's, and watch their memory.

``speed``: tokens per second at 2M tokens, 18,000 documents, 20,000 words, 20 classes and 50 topics: ``medlda`` against
``SLDAModel`` with one binary response (and with one per class), and without its margin against ``LDAModel``. Two
workers each, interleaved in one run after compilation; the best of several rounds and the median of each round's ratio
are shown.

``memory``: resident memory that a chain of ``medlda`` adds to its data, as a multiple of the token arrays (word,
document and topic of each token, four bytes each), while it compiles and after.

``news``: 100 sweeps of ``mmctm`` and ``medlda`` over 20 Newsgroups (``regbayes.datasets.load("20news")``) with a
progress bar.

tomotopy lives in an environment of its own (``benchmarks/peers/requirements.txt``). Prints tables and writes
``bench/topics.json``.

    python benchmarks/topics.py [--only speed memory news] [--rounds 5] [--tokens 2000000] [--out bench]
"""

import argparse
import ctypes
import functools
import json
import pathlib
import subprocess
import sys
import tempfile
import time

import jax
import jax.numpy as jnp
import numpy as np
import races
from jax import random

from regbayes import datasets
from regbayes.inference import draw_chains, medlda_collapsed, mmctm_collapsed
from regbayes.inference.kernels.medlda import plain_tokens
from regbayes.inference.moves.tokens import Probabilities, TokenSweep, TopicKernel, phi_given_z
from regbayes.models import Corpus, medlda
from regbayes.models.laws.arguments import check_positive
from regbayes.models.medlda import mixed_tokens

ROOT = pathlib.Path(__file__).parents[1]
TOPICS, WORDS, CLASSES = 50, 20_000, 20
SETTINGS = {"alpha": 10.0, "beta": 0.01}
SWEEPS = 3


def corpus(num_tokens, num_documents, seed=0):
    """Documents of lognormal lengths, their topics by class, as arrays: words, offsets, classes."""
    rng = np.random.default_rng(seed)
    lengths = rng.lognormal(0.0, 0.8, size=num_documents)
    lengths = np.maximum(1, lengths / lengths.sum() * num_tokens).astype(int)
    y = rng.integers(CLASSES, size=num_documents)
    proportions = rng.dirichlet(np.full(TOPICS, 0.1), size=CLASSES) + 1e-3
    topics = rng.dirichlet(np.full(WORDS, 0.05), size=TOPICS)
    documents = np.repeat(np.arange(num_documents), lengths)
    theta = np.cumsum(np.stack([rng.dirichlet(5 * proportions[k]) for k in y]), axis=1)
    z = np.sum(theta[documents] < rng.uniform(size=len(documents))[:, None], axis=1).clip(0, TOPICS - 1)
    words = np.zeros(len(z), np.int32)
    for t in range(TOPICS):
        words[z == t] = rng.choice(WORDS, size=np.sum(z == t), p=topics[t])
    return words, np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32), y.astype(np.int32)


def as_corpus(words, offsets):
    documents = np.repeat(np.arange(len(offsets) - 1, dtype=np.int32), np.diff(offsets))
    return Corpus(*map(jnp.asarray, (words, documents, offsets)), WORDS)


def lda(X, *, num_topics=TOPICS, alpha=10.0, beta=0.01):
    """Latent Dirichlet allocation: ``medlda`` without its margin."""
    check_positive(alpha=alpha, beta=beta)
    mixed_tokens(X, num_topics, alpha, beta)


def lda_tokens(z, X, *, alpha, **_):
    return plain_tokens(z, X, alpha)


def lda_kernel():
    return TopicKernel(lda, [Probabilities("phi", phi_given_z), TokenSweep(lda_tokens)], name="lda")


def sweeper(kernel, args, settings):
    """A compiled run of sweeps that carries its state on."""
    state = kernel.init(random.key(0), 0, None, args, settings)
    step = jax.jit(lambda state, args: kernel.sample(state, args, settings), donate_argnums=0)
    box = [state]

    def run(num):
        for _ in range(num):
            box[0] = step(box[0], args)
        jax.block_until_ready(box[0])
        return box[0]

    return run


class Peer:
    """tomotopy in its own environment."""

    def __init__(self, words, offsets, y):
        python = ROOT / ".venv-peers" / "bin" / "python"
        self.folder = tempfile.TemporaryDirectory()
        path = pathlib.Path(self.folder.name) / "corpus.npz"
        np.savez(path, words=words, offsets=offsets, y=y)
        pipe = subprocess.PIPE
        command = [python, ROOT / "benchmarks" / "peers" / "topics.py"]
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True)
        print("tomotopy", self.ask({"task": "load", "path": str(path)}))

    def ask(self, request):
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def train(self, model, sweeps, warmup=10):
        settings = {"num_topics": TOPICS, "workers": 2, **SETTINGS}
        return self.ask({"task": "train", "model": model, "sweeps": sweeps, "warmup": warmup, **settings})

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def speed(rounds, num_tokens, warmup):
    words, offsets, y = corpus(num_tokens, num_tokens // 111)
    X, N = as_corpus(words, offsets), len(words)
    print(f"{N:,} tokens, {len(y):,} documents, {WORDS:,} words, {TOPICS} topics, {CLASSES} classes")
    supervised = functools.partial(medlda, num_topics=TOPICS, num_classes=CLASSES)
    ours = {
        "medlda": sweeper(medlda_collapsed(supervised), (X, jnp.asarray(y)), {}),
        "medlda, two classes": sweeper(
            medlda_collapsed(functools.partial(medlda, num_topics=TOPICS, num_classes=2)), (X, jnp.asarray(y % 2)), {}
        ),
        "no margin": sweeper(lda_kernel(), (X,), {}),
    }
    for run in ours.values():
        run(warmup)
    peer = Peer(words, offsets, y)
    theirs = ["SLDAModel", "SLDAModel, classes", "LDAModel"]
    models = dict(zip(theirs, ("slda", "slda-classes", "lda"), strict=True))
    rates = {name: [] for name in (*ours, *theirs)}
    for i in range(rounds):
        for name, run in ours.items():
            start = time.perf_counter()
            run(SWEEPS)
            rates[name].append(SWEEPS * N / (time.perf_counter() - start))
        for name in theirs:
            if name == "SLDAModel, classes" and i:  # seconds for a sweep: once will do
                rates[name].append(rates[name][0])
                continue
            sweeps = 1 if name == "SLDAModel, classes" else SWEEPS
            answer = peer.train(models[name], sweeps, sweeps)
            rates[name].append(sweeps * answer["tokens"] / answer["seconds"])
    peer.close()
    for name, values in rates.items():
        print(f"{name:<22} best {max(values) / 1e6:6.2f} Mtoken/s")
    pairs = [
        ("medlda", "SLDAModel", 1.0),
        ("medlda", "SLDAModel, classes", 1.0),
        ("medlda, two classes", "SLDAModel", 1.0),
        ("no margin", "LDAModel", 0.5),
    ]
    data = f"{N:,} tokens, {TOPICS} topics"
    found = [races.race(a, b, rates, "tokens/s", data=data, least=bar) for a, b, bar in pairs]
    for entry in found:
        print(f"{entry['race'] + ' / ' + entry['peer']:<40} {entry['ratio']['median']:.2f}")
    return found


def resident(field):
    """Resident memory of this process, in bytes: "VmRSS" now, "VmHWM" at its peak."""
    status = pathlib.Path("/proc/self/status").read_text()
    return 1024 * int(status.split(f"{field}:")[1].split()[0])


def memory(num_tokens):
    """In a process of its own, so that the peak is this chain's."""
    command = [sys.executable, __file__, "--only", "report-memory", "--tokens", str(num_tokens)]
    answer = subprocess.run(command, capture_output=True, text=True, check=True)
    found = json.loads(answer.stdout.splitlines()[-1])
    print(f"memory beyond the data: {found['ratio']:.2f} of the token arrays, {found['compiling']:.2f} while compiling")
    return found


def report_memory(num_tokens):
    """A chain's peak, twice over the same data: with the compiler's memory, which no corpus changes, and without."""
    words, offsets, y = corpus(num_tokens, num_tokens // 111)
    args = as_corpus(words, offsets), jnp.asarray(y)
    kernel = medlda_collapsed(functools.partial(medlda, num_topics=TOPICS, num_classes=CLASSES))
    step = jax.jit(lambda state, args: kernel.sample(state, args, {}), donate_argnums=0)
    peaks = []
    for _ in range(2):
        ctypes.CDLL(None).malloc_trim(0)  # what is free now would hide what is taken
        pathlib.Path("/proc/self/clear_refs").write_text("5")  # the peak so far was the generator's
        before = resident("VmRSS")
        state = kernel.init(random.key(0), 0, None, args, {})
        for _ in range(3):
            state = jax.block_until_ready(step(state, args))
        peaks.append(resident("VmHWM") - before)
        del state
    arrays = 12 * len(words)
    print(json.dumps({"token_arrays": arrays, "compiling": peaks[0] / arrays, "ratio": peaks[1] / arrays}))


def news(sweeps):
    """20 Newsgroups, whole, in the loop with its progress."""
    data = datasets.load("20news")
    rng = np.random.default_rng(0)
    landmarks = np.full(len(data.y), -1, np.int32)
    for k in range(20):
        landmarks[rng.choice(np.flatnonzero(data.y == k), size=10, replace=False)] = k
    found = {}
    for name, kernel, labels in (("medlda", medlda_collapsed(), data.y), ("mmctm", mmctm_collapsed(), landmarks)):
        start = time.perf_counter()
        state = draw_chains(kernel, (data.X, labels), num_warmup=sweeps - 1, num_samples=1, num_chains=1).state
        seconds = time.perf_counter() - start
        state = jax.tree.map(lambda leaf: leaf[0], state)
        found[name] = {
            "seconds": seconds,
            "sweeps": sweeps,
            "log_joint": float(state.log_joint),
            "peak": resident("VmHWM"),
        }
        found[name]["fit"] = float(state.tuning[-1]["fit"])
        found[name]["tokens"] = int(state.z["z"].size)
        if name == "mmctm":
            unknown = landmarks < 0
            found[name]["accuracy"] = float(np.mean(np.asarray(state.z["y"])[unknown] == data.y[unknown]))
        print(name, found[name])
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parts = ["speed", "memory", "news"]
    parser.add_argument("--only", nargs="+", choices=[*parts, "report-memory"], default=parts)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=2_000_000)
    parser.add_argument("--warmup", type=int, default=10)
    parser.add_argument("--sweeps", type=int, default=100, help="of news")
    parser.add_argument("--out", default="bench", help="the folder to write to")
    options = parser.parse_args()
    if options.only == ["report-memory"]:
        return report_memory(options.tokens)
    found, details = [], {}
    if "speed" in options.only:
        found += speed(options.rounds, options.tokens, options.warmup)
    if "memory" in options.only:
        details["memory"] = memory(options.tokens)
        ratio, data = details["memory"]["ratio"], f"{options.tokens:,} tokens"
        found.append(races.figure("memory that a chain adds, over the token arrays", ratio, data=data, most=3.0))
    if "news" in options.only:
        details["news"] = news(options.sweeps)
        for name, run in details["news"].items():
            data = f"20 Newsgroups, {run['tokens']:,} tokens, {run['sweeps']} sweeps"
            found.append(races.figure(f"seconds of {name}, with compilation", run["seconds"], data=data))
    races.keep(__file__, found, options, **details)


if __name__ == "__main__":
    main()
