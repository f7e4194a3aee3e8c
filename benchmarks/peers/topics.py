"""Sweeps of tomotopy's samplers in an environment of their own: JSON lines in, JSON lines out.

The task "load" reads an ``.npz`` file with ``words`` (N,), ``offsets`` (D + 1,) and ``y`` (D,); "train" makes so many
sweeps of a model and answers with the seconds that took. Run by ``benchmarks/topics.py`` as
``.venv-peers/bin/python benchmarks/peers/topics.py``.
"""

import json
import sys
import time

import numpy as np
import tomotopy


def make(name, data, num_topics, alpha, beta):
    """``lda``; ``slda``, one binary response; ``slda-classes``, one for each class."""
    settings = {"k": num_topics, "alpha": alpha / num_topics, "eta": beta, "seed": 0}
    words, offsets, y = (data[key] for key in ("words", "offsets", "y"))
    classes = int(y.max()) + 1
    if name == "lda":
        model = tomotopy.LDAModel(**settings)
    else:
        model = tomotopy.SLDAModel(vars="b" * (1 if name == "slda" else classes), **settings)
    texts = words.astype(str).tolist()
    for d, label in enumerate(y):
        text = texts[offsets[d] : offsets[d + 1]]
        if not text:
            continue
        if name == "lda":
            model.add_doc(text)
        else:
            model.add_doc(text, y=[int(label % 2)] if name == "slda" else [int(label == k) for k in range(classes)])
    return model


def main() -> None:
    data, models = {}, {}
    for line in sys.stdin:
        request = json.loads(line)
        if request["task"] == "load":
            with np.load(request["path"]) as file:
                data = {name: file[name] for name in file.files}
            models, reply = {}, {"version": tomotopy.__version__, "isa": tomotopy.isa}
        else:
            name = request["model"]
            if name not in models:
                models[name] = make(name, data, request["num_topics"], request["alpha"], request["beta"])
                models[name].train(request["warmup"], workers=request["workers"])
            start = time.perf_counter()
            models[name].train(request["sweeps"], workers=request["workers"])
            reply = {"seconds": time.perf_counter() - start, "tokens": models[name].num_words}
        print(json.dumps(reply), flush=True)


if __name__ == "__main__":
    main()
