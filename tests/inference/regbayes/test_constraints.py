"""Constraints on expectations: which way they point, conjugates by numerical suprema, proximal maps."""

import numpy as np
import pytest
from scipy.optimize import minimize

from regbayes.inference import EpsilonInsensitive, Equality, Hinge, Inequality, MaxHinge, Quadratic
from regbayes.inference.duality.expectations import Infeasible, Stack


def psi(sites):
    return sites["x"]


CONSTRAINTS = {
    "hinge": Hinge(psi, 1.5),
    "max_hinge": MaxHinge(psi, 1.5),
    "epsilon_insensitive": EpsilonInsensitive(psi, np.array([1.0, -2.0, 0.5]), 0.3, 1.5),
    "quadratic": Quadratic(psi, np.array([1.0, -2.0, 0.5]), 1.5),
    "equality": Equality(psi, np.array([1.0, -2.0, 0.5])),
    "inequality": Inequality(psi, np.array([1.0, -2.0, 0.5])),
}
each = pytest.mark.parametrize("constraint", CONSTRAINTS.values(), ids=CONSTRAINTS)


def value(constraint, E):
    """``g`` as the paper prints it, with the indicators of the hard ones."""
    E = np.asarray(E, float)
    match constraint:
        case Hinge():
            return np.sum(1.5 * np.maximum(0, E))
        case MaxHinge():
            return 1.5 * np.max(E)
        case EpsilonInsensitive(y=y):
            return np.sum(1.5 * np.maximum(0, np.abs(E - y) - 0.3))
        case Quadratic(target=target):
            return 0.75 * np.sum((E - target) ** 2)
        case Equality(target=target):
            return 0.0 if np.all(target == E) else np.inf
        case Inequality(upper=upper):
            return 0.0 if np.all(upper >= E) else np.inf


@each
def test_value(constraint):
    rng = np.random.default_rng(0)
    points = [rng.normal(size=3) * 3 for _ in range(20)] + [np.array([1.0, -2.0, 0.5])]
    for E in points:
        np.testing.assert_allclose(constraint.value(E), value(constraint, E), rtol=1e-12)


def supremum(constraint, mu, width):
    """``sup <mu, E> - g(E)`` over a box: concave, so along a fine grid of each kink and vertex."""
    grid = np.concatenate([np.linspace(-width, width, 161), [0.0, 0.2, 0.7, 0.8, 1.3, 0.5, 1.0, -2.0, -2.3, -1.7]])
    if isinstance(constraint, MaxHinge):
        E = np.stack(np.meshgrid(*[np.linspace(-width, width, 41)] * 3, indexing="ij"), -1).reshape(-1, 3)
        return np.max(E @ mu - 1.5 * E.max(axis=1))
    total = 0.0
    for k in range(3):  # separable
        E = np.array(CONSTRAINTS["equality"].target)[None].repeat(len(grid), 0).copy()
        base = value(constraint, E[0])
        E[:, k] = grid
        gs = np.array([value(constraint, e) for e in E])
        g_k = gs - base + value_at_k(constraint, k)
        total += np.max(mu[k] * grid - g_k)
    return total


def value_at_k(constraint, k):
    """The entry ``k`` of ``g`` at the point (1, -2, 0.5)."""
    return 1.5 * max(0.0, [1.0, -2.0, 0.5][k]) if isinstance(constraint, Hinge) else 0.0


INSIDE = {
    "hinge": np.array([0.0, 0.7, 1.5]),
    "max_hinge": np.array([0.2, 0.0, 1.3]),
    "epsilon_insensitive": np.array([-1.5, 0.4, 1.1]),
    "quadratic": np.array([-1.5, 0.75, 3.0]),
    "equality": np.array([-4.0, 0.75, 3.0]),
    "inequality": np.array([0.0, 0.75, 3.0]),
}


@pytest.mark.parametrize("name", CONSTRAINTS)
def test_conjugate_is_the_supremum(name):
    found = CONSTRAINTS[name].conjugate(INSIDE[name])
    np.testing.assert_allclose(found, supremum(CONSTRAINTS[name], INSIDE[name], 8.0), atol=1e-9)


@pytest.mark.parametrize(
    ("name", "mu"),
    [
        ("hinge", [-0.1, 0.5, 0.5]),
        ("hinge", [0.1, 0.5, 1.6]),
        ("max_hinge", [0.5, 0.5, 0.4]),
        ("max_hinge", [-0.1, 0.8, 0.8]),
        ("epsilon_insensitive", [0.1, -1.6, 0.5]),
        ("inequality", [-0.1, 0.5, 0.5]),
    ],
)
def test_conjugate_is_infinite_outside_its_domain(name, mu):
    mu = np.array(mu)
    assert CONSTRAINTS[name].conjugate(mu) == np.inf
    assert supremum(CONSTRAINTS[name], mu, 80.0) > supremum(CONSTRAINTS[name], mu, 8.0) + 1.0  # it grows with the box


@each
def test_project_and_prox_are_nearest_points(constraint):
    rng = np.random.default_rng(1)
    for _ in range(10):
        v = 2 * rng.normal(size=3)
        for step in (1e-8, 0.7):
            found = constraint.prox(v, step)
            objective = constraint.conjugate(found) + np.sum((found - v) ** 2) / (2 * step)
            assert np.isfinite(objective)
            for _ in range(50):  # no feasible neighbour is better
                other = constraint.project(found + 0.3 * rng.normal(size=3) * rng.choice([1, 0.1, 0.01]))
                rival = constraint.conjugate(other) + np.sum((other - v) ** 2) / (2 * step)
                assert objective <= rival + 1e-9 * (1 + abs(rival))
        np.testing.assert_allclose(constraint.project(v), constraint.prox(v, 1e-10), atol=1e-8)


@each
def test_gap_is_zero_at_a_pair_of_optima_and_positive_elsewhere(constraint):
    rng = np.random.default_rng(2)
    mu = constraint.project(rng.normal(size=3))
    assert constraint.gap(rng.normal(size=3), mu) >= -1e-12
    # prox(mu + E) = mu says that E is a subgradient of g* at mu
    v = 2 * rng.normal(size=3)
    mu = constraint.prox(v, 1.0)
    np.testing.assert_allclose(constraint.gap(v - mu, mu), 0.0, atol=1e-12)


def test_inequalities_ask_for_small_expectations():
    low, high = np.array([-1.0]), np.array([1.0])
    assert Hinge(psi).value(low) == 0 < Hinge(psi).value(high)
    assert Inequality(psi).value(low) == 0 < Inequality(psi).value(high)
    assert np.all(Hinge(psi).project(np.array([-9.0, 9.0])) == [0, 1])  # mu >= 0, hence phi = -mu <= 0


def test_prices_may_differ_by_entry():
    C = np.array([0.5, 2.0])
    np.testing.assert_allclose(Hinge(psi, C).project(np.array([3.0, 3.0])), C)
    assert MaxHinge(psi, C).value(np.array([[0.0, 1.0], [3.0, 2.0]])) == 6.5
    np.testing.assert_allclose(MaxHinge(psi, C).project(np.ones((2, 3)) * [[1.0], [-4.0]]).sum(1), C)


def test_model_solved_to_the_last_digits():
    """All six at once, correlated, against SciPy on the primal: ``E`` moves from ``b`` at the price of ``H^-1``."""
    rng = np.random.default_rng(3)
    stack = Stack(list(CONSTRAINTS.values())[:4], [(3,)] * 4)
    B = rng.normal(size=(12, 14))
    H, b = B @ B.T / 14, 2 * rng.normal(size=12)
    mu = stack.solve(b, H, stack.start())
    E = b - H @ mu
    assert stack.gap(E, mu) < 1e-9

    def primal(E):
        return (b - E) @ np.linalg.solve(H, b - E) / 2 + stack.soft_value(E)

    rival = minimize(primal, E + 0.1 * rng.normal(size=12), method="Powell", options={"maxiter": 3000})
    assert primal(E) <= rival.fun + 1e-9


def test_conflicting_equalities_are_refused_by_name():
    stack = Stack([Equality(psi, 0.0, name="low"), Equality(psi, 1.0, name="high"), Hinge(psi)], [(), (), ()])
    with pytest.raises(Infeasible, match="'low', 'high' cannot be met"):
        stack.solve(np.zeros(3), np.ones((3, 3)), np.zeros(3))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Hinge(3.0), "psi must be a function of the sites, found 3.0"),
        (lambda: Hinge(psi, C=0.0), "C must be positive and finite, found 0.0"),
        (lambda: EpsilonInsensitive(psi, 0.0, -1.0), "epsilon must be non-negative and finite, found -1.0"),
        (lambda: Equality(psi, np.nan, name="total"), "target of the constraint 'total' must be finite"),
        (lambda: Hinge(psi, name=""), "name must be a non-empty string"),
        (lambda: MaxHinge(psi).check(()), r"'max_hinge' must have shape \(..., L\), found \(\)"),
        (
            lambda: Equality(psi, np.zeros(2)).check((3,)),
            r"'equality' has shape \(3,\), to which target of shape \(2,\)",
        ),
    ],
)
def test_bad_arguments(make, message):
    with pytest.raises(ValueError, match=message):
        make()
