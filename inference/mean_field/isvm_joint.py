"""The infinite SVM's assignments under the joint margin, that of the weighted vote."""

import numpy as np

from ..duality.problem import compiled


@compiled
def joint_assignments(logits, G, scale, cost, tol, phi):
    """(11) with the weighted vote's margins ``G`` (n, T, L), into ``phi`` (n, T).

    For each datum the minimum of ``scale sum_t phi_t (log phi_t - logit_t) + cost max_y sum_t phi_t G_ty`` over the
    simplex, by its dual: ``omega`` moves from the label with the least margin to the one with the largest, as far
    as the two meet, until ``sum_y omega_y (max margin - margin_y)`` is ``tol`` or less.
    """
    n, T, L = G.shape
    omega, margin, tilt, trial = np.empty(L), np.empty(L), np.empty(T), np.empty(T)
    for d in range(n):
        omega[:] = cost / L
        tilt[:] = 0.0
        for t in range(T):
            for y in range(L):
                tilt[t] -= omega[y] * G[d, t, y] / scale
        for _ in range(1000):
            top = np.max(logits[d] + tilt)
            trial[:] = np.exp(logits[d] + tilt - top)
            trial /= np.sum(trial)
            margin[:] = 0.0
            for t in range(T):
                for y in range(L):
                    margin[y] += trial[t] * G[d, t, y]
            up = np.argmax(margin)
            gap, down = 0.0, -1
            for y in range(L):
                gap += omega[y] * (margin[up] - margin[y])
                if omega[y] > 0 and (down < 0 or margin[y] < margin[down]):
                    down = y
            if gap <= tol:
                break
            low, high = 0.0, omega[down]
            move = high
            for step in range(60):
                top = -np.inf
                for t in range(T):
                    trial[t] = logits[d, t] + tilt[t] - move * (G[d, t, up] - G[d, t, down]) / scale
                    top = max(top, trial[t])
                total, slope = 0.0, 0.0
                for t in range(T):
                    e = np.exp(trial[t] - top)
                    total += e
                    slope += e * (G[d, t, up] - G[d, t, down])
                if slope > 0:
                    low = move
                    if step == 0:
                        break
                else:
                    high = move
                move = (low + high) / 2
                if high - low <= 1e-16 * cost:
                    break
            omega[up] += move
            omega[down] = 0.0 if move == omega[down] else omega[down] - move
            for t in range(T):
                tilt[t] -= move * (G[d, t, up] - G[d, t, down]) / scale
        top = np.max(logits[d] + tilt)
        trial[:] = np.exp(logits[d] + tilt - top)
        phi[d] = trial / np.sum(trial)
