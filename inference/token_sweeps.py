"""One sweep over the tokens of a corpus, by compiled code on the host's cores.

The same conditionals as :func:`regbayes.inference.topics.token_weights`, faster: of the margin's classes only those are
looked at that can be a token's strongest rival, and their factors are computed once for a document. Documents are
independent given the rest, so they are shared out among threads.
"""

import math

import numpy as np

from ..models import host
from ..models.host import GOLDEN, uniform

BLOCK = 8
"""Topics whose weights are summed together; columns are padded to whole blocks."""
STEEP = 30.0
"""A document in which one token can change the log of its factor by more has its weights computed as logs."""
CHUNKS = 16
"""Parts, per core, that the documents are cut into."""

compiled = host.compiled(cache=True, fastmath={"reassoc", "contract", "nsz"})


def sweep(
    out: np.ndarray,
    words: np.ndarray,
    offsets: np.ndarray,
    z: np.ndarray,
    seed: np.ndarray,
    uniforms: np.ndarray,
    columns: np.ndarray,
    base: np.ndarray,
    group: np.ndarray,
    rows: np.ndarray,
    shifts: np.ndarray,
    own: np.ndarray,
    cost: np.ndarray,
) -> None:
    """New topics of all tokens.

    :param out: (N,) new topics; or (N, T), then every token's probabilities of topics given the others.
    :param words: (N,) words.
    :param offsets: (D + 1,) where documents begin.
    :param z: (N,) topics.
    :param seed: (2,) bits for the uniforms, used where none are given.
    :param uniforms: (N,) or (0,).
    :param columns: (V, T') the topics' probabilities of each word, up to a factor, zeros beyond T.
    :param base: (G, T) Dirichlet parameters of documents, by group.
    :param group: (D,) the documents' groups.
    :param rows: (J, T), it and the others as in :class:`~regbayes.inference.Margin`.
    """
    T = base.shape[1]
    padded = np.zeros((len(base), columns.shape[1]), columns.dtype)
    padded[:, :T] = base
    rows, shifts = rows.astype(np.float64), shifts.astype(np.float64)
    gaps = np.array([[np.max(row - other) for other in rows] for row in rows])
    frozen = out.ndim == 2
    topics, probs = (z.copy(), out) if frozen else (out, np.zeros((0, T), columns.dtype))
    topics[:] = z
    tokens = np.linspace(0, len(words), CHUNKS * host.num_cores() + 1)
    edges = np.unique(np.append(np.searchsorted(offsets[:-1], tokens[:-1]), len(offsets) - 1))
    rest = (words, offsets, topics, host.join(seed), uniforms, columns, padded, group, rows, shifts, own)
    host.in_parts(lambda a, b: _documents(a, b, *rest, 2 * float(cost), gaps, probs), edges)


@compiled
def _pick(p, sums, u):
    """The topic where the running sum of the weights passes the share ``u`` of their total."""
    blocks = len(p) // BLOCK
    total = sums.dtype.type(0)
    for b in range(blocks):
        s = p.dtype.type(0)
        for i in range(b * BLOCK, (b + 1) * BLOCK):
            s += p[i]
        sums[b] = s
        total += s
    height = sums.dtype.type(u * total)
    b = 0
    while b < blocks - 1 and height >= sums[b]:
        height -= sums[b]
        b += 1
    t = b * BLOCK
    last = t
    while t < (b + 1) * BLOCK:
        if p[t] > 0:
            last = t
            if height < p[t]:
                break
            height -= p[t]
        t += 1
    return last


@compiled
def _rivals(s, gaps, inverse, top, active):
    """Which classes can be the strongest for some topic of the token; how many, and the strongest now first."""
    num = 1
    active[0] = top
    for j in range(len(s)):
        if j != top and s[j] + gaps[j, top] * inverse >= s[top]:
            active[num] = j
            num += 1
    return num


@compiled
def _documents(
    first, last, words, offsets, z, seed, uniforms, columns, base, group, rows, shifts, own, twice, gaps, probs
):
    T, padded, J = rows.shape[1], columns.shape[1], rows.shape[0]
    n, w = np.zeros(T, np.int64), np.zeros(padded, columns.dtype)
    p, sums = np.zeros(padded, columns.dtype), np.zeros(padded // BLOCK, columns.dtype)
    s, active = np.zeros(J), np.zeros(J, np.int64)
    factors, known = np.zeros((J, padded), columns.dtype), np.zeros(J, np.bool_)
    losses = np.zeros(T)
    steepest = twice * np.max(gaps)
    frozen = len(probs) > 0
    for d in range(first, last):
        begin, end, a = offsets[d], offsets[d + 1], base[group[d]]
        if begin == end:
            continue
        inverse, mine = 1.0 / (end - begin), own[d]
        n[:] = 0
        for l in range(begin, end):
            n[z[l]] += 1
        for t in range(T):
            w[t] = a[t] + columns.dtype.type(n[t])
        if J > 1:
            s[:] = shifts[d]
            for t in range(T):
                if n[t] > 0:
                    for j in range(J):
                        s[j] += rows[j, t] * n[t] * inverse
            known[:] = False
        steep = J > 1 and steepest * inverse > STEEP
        for l in range(begin, end):
            old, column = z[l], columns[words[l]]
            n[old] -= 1
            w[old] = a[old] + columns.dtype.type(n[old])
            num, top = 0, mine
            if J > 1:
                top = 0
                for j in range(J):
                    s[j] -= rows[j, old] * inverse
                    if s[j] > s[top]:
                        top = j
                num = 1 if steep else _rivals(s, gaps, inverse, top, active)
            if steep:
                least = np.inf
                for t in range(T):
                    worst = -np.inf
                    for j in range(J):
                        worst = max(worst, s[j] + rows[j, t] * inverse)
                    losses[t] = twice * (worst - rows[mine, t] * inverse) - math.log(w[t]) - math.log(column[t])
                    least = min(least, losses[t])
                for t in range(T):
                    p[t] = math.exp(least - losses[t])
            elif num <= 1 and top == mine:
                for t in range(padded):
                    p[t] = w[t] * column[t]
            else:
                for i in range(num):
                    j = active[i]
                    if not known[j]:
                        known[j] = True
                        for t in range(T):
                            factors[j, t] = math.exp(-twice * (rows[j, t] - rows[mine, t]) * inverse)
                f = factors[top]
                if num == 1:
                    for t in range(padded):
                        p[t] = w[t] * column[t] * f[t]
                else:
                    for t in range(padded):
                        p[t] = f[t]
                    for i in range(1, num):
                        j = active[i]
                        # exp(-2c max) is the least of the exponentials.
                        height, g = columns.dtype.type(math.exp(twice * (s[top] - s[j]))), factors[j]
                        for t in range(padded):
                            p[t] = min(p[t], height * g[t])
                    for t in range(padded):
                        p[t] *= w[t] * column[t]
            if frozen:
                total = 0.0
                for t in range(T):
                    total += p[t]
                for t in range(T):
                    probs[l, t] = p[t] / total
                new = old
            else:
                u = uniforms[l] if len(uniforms) > 0 else uniform(seed + GOLDEN * np.uint64(l + 1))
                new = _pick(p, sums, u)
            z[l] = new
            n[new] += 1
            w[new] = a[new] + columns.dtype.type(n[new])
            if J > 1:
                for j in range(J):
                    s[j] += rows[j, new] * inverse
