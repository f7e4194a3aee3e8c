"""One sweep over the tokens of a corpus, by compiled code on the host's cores.

The same conditionals as :func:`regbayes.inference.moves.tokens.token_weights`, faster: of the margin's classes only
those are looked at that can be a token's strongest rival, and their factors are computed once for a document. Documents
are independent given the rest, so they are shared out among threads.
"""

import math

import numpy as np

from ...models.laws import cores as host
from ...models.laws.cores import GOLDEN, uniform

WIDTH = 8
"""Columns are padded to a multiple of it."""
STEEP = 30.0
"""A document in which one token can change the log of its factor by more has its weights computed as logs."""

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
    weights, shifts = np.ascontiguousarray(rows.T, np.float64), shifts.astype(np.float64)
    gaps = np.max(weights[:, None, :] - weights[:, :, None], axis=0)
    frozen = out.ndim == 2
    topics, probs = (z.copy(), out) if frozen else (out, np.zeros((0, T), columns.dtype))
    topics[:] = z
    rest = (words, offsets, topics, host.join(seed), uniforms, columns, padded, group, weights, shifts, own)
    host.in_parts(lambda a, b: _documents(a, b, *rest, 2 * float(cost), gaps, probs), host.edges_of(offsets))


def impute(
    out: tuple[np.ndarray, np.ndarray],
    words: np.ndarray,
    offsets: np.ndarray,
    z: np.ndarray,
    seed: np.ndarray,
    uniforms: np.ndarray,
    columns: np.ndarray,
    base: np.ndarray,
    group: np.ndarray,
) -> None:
    """Topics of all tokens given those before them in their document, and what the draws weigh.

    :param out: (N,) topics and (D,) log weights.
    :param z: (N,) topics to be weighed; or (0,), then they are drawn.
    :param words: it and the others as for :func:`sweep`.
    """
    topics, logs = out
    fresh = len(z) != len(words)
    if not fresh:
        topics[:] = z
    rest = (words, offsets, topics, fresh, host.join(seed), uniforms, columns, base, group, logs)
    host.in_parts(lambda a, b: _imputed(a, b, *rest), host.edges_of(offsets))


def tables(
    out: np.ndarray, n: np.ndarray, base: np.ndarray, group: np.ndarray, seed: np.ndarray, uniforms: np.ndarray
) -> None:
    """Tables of Chinese restaurants, as :func:`regbayes.inference.moves.documents.draw_tables` has them.

    :param out: (R, T) tables.
    :param n: (R, T) customers.
    :param base: (G, T) concentrations, by group; it and the others as for :func:`sweep`.
    """
    starts = np.append(0, np.cumsum(n.sum(1, dtype=np.int64)))
    rest = (out, n, base, group, starts, host.join(seed), uniforms)
    host.in_parts(lambda a, b: _tables(a, b, *rest), host.edges_of(starts))


def sums(out: np.ndarray, words: np.ndarray, offsets: np.ndarray, columns: np.ndarray) -> None:
    """Sums over documents' tokens of what ``columns`` (V, K) give their words, in ``out`` (D, K)."""
    host.in_parts(lambda a, b: _sums(a, b, out, words, offsets, columns), host.edges_of(offsets))


@host.compiled(inline="always")
def _pick(p, height, T):
    """The topic where the running sum of the weights passes ``height``: four at a time, then one."""
    t = 0
    while t < len(p) - 4:
        four = (p[t] + p[t + 1]) + (p[t + 2] + p[t + 3])
        if height < four:
            break
        height -= four
        t += 4
    while t < T and height >= p[t]:
        height -= p[t]
        t += 1
    # Beyond the end by rounding alone: the likeliest, not one that may be next to impossible.
    return t if t < T else np.argmax(p)


# Rows of matrices are not taken as arrays in the loop over tokens: threads would race for their reference counts.
@compiled
def _documents(
    first, last, words, offsets, z, seed, uniforms, columns, base, group, weights, shifts, own, twice, gaps, probs
):
    (T, J), padded, real = weights.shape, columns.shape[1], columns.dtype.type
    n, a, w = np.zeros(T, np.int64), np.zeros(padded, columns.dtype), np.zeros(padded, columns.dtype)
    p, f = np.zeros(padded, columns.dtype), np.zeros(padded, columns.dtype)
    s, r, active, losses = np.zeros(J), np.zeros(J), np.zeros(J + 1, np.int64), np.zeros(T)
    factors, known = np.zeros((J, padded), columns.dtype), np.zeros(J, np.bool_)
    steepest, frozen = np.max(gaps), len(probs) > 0
    for d in range(first, last):
        begin, end, g, mine = offsets[d], offsets[d + 1], group[d], own[d]
        if begin == end:
            continue
        inverse = 1.0 / (end - begin)
        n[:] = 0
        for l in range(begin, end):
            n[z[l]] += 1
        for t in range(T):
            a[t] = base[g, t]
            w[t] = a[t] + real(n[t])
        for j in range(J):
            s[j] = shifts[d, j]
            known[j] = False
        if J > 1:
            for t in range(T):
                if n[t] > 0:
                    for j in range(J):
                        s[j] += weights[t, j] * (n[t] * inverse)
        steep = J > 1 and twice * steepest * inverse > STEEP
        num, top, rival, height, settled = 1, mine, mine, real(1), -1
        for l in range(begin, end):
            old, word = z[l], words[l]
            n[old] -= 1
            w[old] = a[old] + real(n[old])
            if J > 1 and (settled < 0 or steep):
                for j in range(J):  # without this token
                    r[j] = s[j] - weights[old, j] * inverse
                if not steep:
                    if num > 1:  # the strongest of those that were near
                        for k in range(num):
                            if r[active[k]] > r[top]:
                                top = active[k]
                    # A class that is weaker than another for every topic of this token need not be looked at.
                    num, slack, active[0] = 1, 1e30, top
                    for j in range(J):
                        behind = r[top] - r[j] - gaps[top, j] * inverse
                        near = behind <= 0.0 and j != top
                        active[num] = j
                        num += near
                        slack = min(slack, 1e30 if near or j == top else behind)
                    # A token that moves changes the difference of two scores by no more than twice the largest gap,
                    # and so does leaving out another token than this one.
                    settled = int(min(slack / (2.0 * steepest * inverse + 1e-30), 1e6)) - 1 if num == 1 else -1
                    if num > 1 or top != mine:
                        for k in range(num):
                            j = active[k]
                            if not known[j]:
                                known[j] = True
                                for t in range(T):
                                    change = weights[t, j] - weights[t, mine]
                                    factors[j, t] = math.exp(-twice * change * inverse)
                    if num > 1:
                        # exp(-2c max) is the least of the exponentials.
                        rival = active[1]
                        height = real(math.exp(twice * (r[top] - r[rival])))
                    if num > 2:
                        for t in range(padded):
                            f[t] = min(factors[top, t], height * factors[rival, t])
                        for k in range(2, num):
                            j = active[k]
                            height = real(math.exp(twice * (r[top] - r[j])))
                            for t in range(padded):
                                f[t] = min(f[t], height * factors[j, t])
            total = real(0)
            if steep:
                least = np.inf
                for t in range(T):
                    worst = -np.inf
                    for j in range(J):
                        worst = max(worst, r[j] + weights[t, j] * inverse)
                    losses[t] = twice * (worst - weights[t, mine] * inverse) - math.log(w[t] * columns[word, t])
                    least = min(least, losses[t])
                for t in range(T):
                    p[t] = math.exp(least - losses[t])
                    total += p[t]
            elif num == 1 and top == mine:
                for t in range(padded):
                    x = w[t] * columns[word, t]
                    p[t] = x
                    total += x
            elif num == 1:
                for t in range(padded):
                    x = w[t] * columns[word, t] * factors[top, t]
                    p[t] = x
                    total += x
            elif num == 2:
                for t in range(padded):
                    x = w[t] * columns[word, t] * min(factors[top, t], height * factors[rival, t])
                    p[t] = x
                    total += x
            else:
                for t in range(padded):
                    x = w[t] * columns[word, t] * f[t]
                    p[t] = x
                    total += x
            new = old
            if frozen:
                for t in range(T):
                    probs[l, t] = p[t] / total
            else:
                u = uniforms[l] if len(uniforms) > 0 else uniform(seed + GOLDEN * np.uint64(l + 1))
                above = real(u) * total - p[old]
                if above > 0:  # most tokens stay, so the topic they have comes first
                    p[old] = 0
                    new = z.dtype.type(_pick(p, above, T))
                    z[l] = new
            n[new] += 1
            w[new] = a[new] + real(n[new])
            if J > 1 and new != old:
                settled -= 1
                for j in range(J):
                    s[j] += (weights[new, j] - weights[old, j]) * inverse


@compiled
def _imputed(first, last, words, offsets, z, fresh, seed, uniforms, columns, base, group, logs):
    T, padded, real = base.shape[1], columns.shape[1], columns.dtype.type
    w, p = np.zeros(padded, columns.dtype), np.zeros(padded, columns.dtype)
    for d in range(first, last):
        mass, weight = 0.0, 0.0
        for t in range(T):
            w[t] = base[group[d], t]
            mass += w[t]
        for l in range(offsets[d], offsets[d + 1]):
            total, word = real(0), words[l]
            for t in range(padded):
                x = w[t] * columns[word, t]
                p[t] = x
                total += x
            weight += math.log(total / mass)
            mass += 1.0
            if fresh:
                u = uniforms[l] if len(uniforms) > 0 else uniform(seed + GOLDEN * np.uint64(l + 1))
                z[l] = z.dtype.type(_pick(p, real(u) * total, T))
            w[z[l]] += real(1)
        logs[d] = weight


@compiled
def _tables(first, last, out, n, base, group, starts, seed, uniforms):
    for d in range(first, last):
        customer = starts[d]
        for t in range(n.shape[1]):
            a, m = base[group[d], t], 0
            for i in range(int(n[d, t])):
                u = uniforms[customer] if len(uniforms) > 0 else uniform(seed + GOLDEN * np.uint64(customer + 1))
                m += u * (a + i) < a
                customer += 1
            out[d, t] = m


@compiled
def _sums(first, last, out, words, offsets, columns):
    K = columns.shape[1]
    total = np.zeros(K)
    for d in range(first, last):
        total[:] = 0
        for l in range(offsets[d], offsets[d + 1]):
            for k in range(K):
                total[k] += columns[words[l], k]
        for k in range(K):
            out[d, k] = total[k]
