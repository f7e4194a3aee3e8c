r"""MedLDA's words: the topics of a document's words under its margin, compiled.

For one document ``q(z_w)`` minimises, with the document's shares ``x = sum_w n_w q(z_w) / N``,

.. math:: \sum_w n_w \sum_t q_{wt} (\log q_{wt} - \log\theta_t - \log\phi_{tw})
          + C \Big[\max_j (h_j + r_j \cdot x) - r_o \cdot x\Big].

Its dual has multipliers ``omega_j >= 0`` that sum to ``C``, and

.. math:: q_{wt} \propto \theta_t \phi_{tw} \exp\Big\{\frac1N \sum_j \omega_j (r_o - r_j)_t\Big\}.

They are those *at the new* ``q``: the multipliers of the weights' own dual, which the paper puts here, may raise the
objective. Mass moves between two pieces at a time, by a safeguarded Newton step, until the duality gap is small.
"""

import math

import numpy as np

from ...models.laws import cores as host
from ..duality.problem import compiled

Array = np.ndarray

LEAST = -300.0  # the least logarithm, relative to the largest
PASSES = 200  # over a document's words in one update, at most


def fit_words(
    counts: tuple[Array, Array, Array],
    columns: Array,
    log_theta: Array,
    margin: tuple[Array, Array, Array, float],
    omega: Array,
    alpha: float,
    rounds: int,
    tol: float,
    settled: float = 0.0,
) -> tuple[Array, Array, Array]:
    """The words of all documents; ``omega`` (D, J), where their duals start, and ``log_theta`` (D, T) change in place.

    :param counts: the data, indices and offsets of CSR.
    :param columns: (V, T) ``phi`` up to a factor for each word.
    :param log_theta: (D, T) ``log theta``.
    :param margin: ``r`` (J, T), ``h`` (D, J), ``o`` (D,) and ``C``; a single row is no margin.
    :param alpha: of ``q(theta)``'s prior, updated between rounds.
    :param rounds: updates of the words, at most.
    :param tol: the duality gap of a document, for each of its words.
    :param settled: stop when a round changes no topic's number of words by more.
    :return: (D, T) logarithms of the documents' factors ``B``, (nnz,) ``n_w / sum_t B_t phi_tw``, such that
        ``n_w q_wt`` is the product of ``B_t``, ``phi_tw`` and that number, and (D,) ``sum_w n_w log sum_t B_t phi_tw``.
    """
    data, indices, offsets = counts
    D, T = log_theta.shape
    log_B, ratio, logs = np.zeros((D, T)), np.zeros(len(data)), np.zeros(D)
    rows, shifts, own, cost = margin

    def part(first: int, last: int) -> None:
        _documents(
            first, last, data, indices, offsets, columns, log_theta, rows, shifts, own, float(cost), omega,
            float(alpha), rounds, tol, settled, log_B, ratio, logs,
        )  # fmt: skip

    host.in_parts(part, host.edges_of(offsets))
    return log_B, ratio, logs


@compiled
def _digamma(x):
    total = 0.0
    while x < 10.0:
        total -= 1.0 / x
        x += 1.0
    y = 1.0 / (x * x)
    series = y * (1 / 12 - y * (1 / 120 - y * (1 / 252 - y * (1 / 240 - y * (5 / 660 - y * (691 / 32760 - y / 12))))))
    return total + math.log(x) - 0.5 / x - series


@compiled
def _pass(first, last, data, indices, columns, B, delta, ratio, S):
    """Into ``ratio`` and ``S`` (T,), the words of each topic; returns the curvature along ``delta`` (T,)."""
    T = len(B)
    S[:] = 0.0
    curvature = 0.0
    for l in range(first, last):
        w, total, mean, square = indices[l], 0.0, 0.0, 0.0
        for t in range(T):
            p = columns[w, t] * B[t]
            d = p * delta[t]
            total += p
            mean += d
            square += d * delta[t]
        r = data[l] / total
        ratio[l] = r
        curvature += r * (square - mean * mean / total)
        for t in range(T):
            S[t] += r * columns[w, t]
    for t in range(T):
        S[t] *= B[t]
    return curvature


@compiled
def _tilted(log_theta, tilt, log_B, B):
    """``B`` (T,) and its logarithm, of which the largest is 0."""
    most = -np.inf
    for t in range(len(B)):
        most = max(most, log_theta[t] + tilt[t])
    for t in range(len(B)):
        log_B[t] = max(log_theta[t] + tilt[t] - most, LEAST)
        B[t] = math.exp(log_B[t])


@compiled
def _margins(rows, shifts, o, S, N, margins):
    """``h_j + r_j . x - r_o . x`` into ``margins`` (J,)."""
    for j in range(len(margins)):
        margins[j] = shifts[j] - shifts[o]
        for t in range(len(S)):
            margins[j] += (rows[j, t] - rows[o, t]) * S[t] / N


@compiled
def _documents(
    first, last, data, indices, offsets, columns, log_theta, rows, shifts, own, cost, omega, alpha, rounds, tol,
    settled, log_B, ratio, logs,
):  # fmt: skip
    J, T = rows.shape
    B, S, old, delta, tilt, margins = np.ones(T), np.zeros(T), np.zeros(T), np.zeros(T), np.zeros(T), np.zeros(J)
    for d in range(first, last):
        begin, end, o = offsets[d], offsets[d + 1], own[d]
        N = np.sum(data[begin:end])
        if N == 0:
            continue
        w = omega[d]
        for step in range(rounds):
            tilt[:] = 0.0
            for j in range(J):
                if w[j] > 0.0 and j != o:
                    for t in range(T):
                        tilt[t] += w[j] * (rows[o, t] - rows[j, t]) / N
            delta[:] = 0.0
            _tilted(log_theta[d], tilt, log_B[d], B)
            _pass(begin, end, data, indices, columns, B, delta, ratio, S)
            passes = 1
            while J > 1 and passes < PASSES:
                _margins(rows, shifts[d], o, S, N, margins)
                up = int(np.argmax(margins))
                gap, most, down = 0.0, 0.0, up
                for j in range(J):
                    part = w[j] * (margins[up] - margins[j])
                    gap += part
                    if part > most:
                        most, down = part, j
                if gap <= tol * N:
                    break
                # The slope of the dual falls along the move: find where it is 0, or half of what it was.
                slope = margins[up] - margins[down]
                goal, low, high, at = slope / 2, 0.0, w[down], 0.0
                for t in range(T):
                    delta[t] = (rows[down, t] - rows[up, t]) / N
                curvature = _pass(begin, end, data, indices, columns, B, delta, ratio, S)
                passes += 1
                while passes < PASSES:
                    move = at + slope / curvature if curvature > 0.0 else np.inf if slope > 0.0 else -np.inf
                    if move >= high and high == w[down]:
                        move = high
                    elif not low < move < high:
                        move = (low + high) / 2
                    for t in range(T):
                        tilt[t] += (move - at) * delta[t]
                    at = move
                    _tilted(log_theta[d], tilt, log_B[d], B)
                    curvature = _pass(begin, end, data, indices, columns, B, delta, ratio, S)
                    passes += 1
                    slope = shifts[d, up] - shifts[d, down]
                    for t in range(T):
                        slope -= delta[t] * S[t]
                    if abs(slope) <= goal or (at == w[down] and slope >= 0.0):
                        break
                    if slope > 0.0:
                        low = at
                    else:
                        high = at
                w[up] += at
                w[down] = 0.0 if at == w[down] else w[down] - at
            change = 0.0
            for t in range(T):
                change = max(change, abs(S[t] - old[t]))
                old[t] = S[t]
            if step == rounds - 1 or (step > 0 and change <= settled):
                break
            for t in range(T):
                log_theta[d, t] = _digamma(alpha + S[t])
        total = 0.0
        for l in range(begin, end):
            total += data[l] * math.log(data[l] / ratio[l])
        logs[d] = total
