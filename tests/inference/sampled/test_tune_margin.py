"""The heuristic that chooses a margin: which way it goes, and where it stops."""

import numpy as np
import pytest

from regbayes.inference import tune_margin

SETTINGS = {"num_sweeps": 40, "max_clusters": 16, "prior_scale": 1.0}  # one for all, so that they compile once


@pytest.fixture(scope="module")
def X():
    """Three tight clusters."""
    rng = np.random.default_rng(0)
    centres = np.array([[-1.5, 0.0], [1.5, 0.0], [0.0, 2.0]])
    return centres[np.arange(45) % 3] + 0.2 * rng.normal(size=(45, 2))


def test_too_many_clusters_strengthen_the_margin_and_too_few_weaken_it(X):
    one, many = (tune_margin(X, num_clusters=num, max_strength=np.inf, **SETTINGS) for num in (1, 12))
    assert one.cost * one.ell > 0.1 * 0.1 > many.cost * many.ell
    assert 0 < many.cost <= 0.1
    assert 0 < many.ell <= 0.1
    for found in (one, many):
        cost, ell, num = (found.trace[name] for name in ("cost", "ell", "num_clusters"))
        assert len(num) == 40
        assert cost[0] == ell[0] == np.float32(0.1)
        # One of the two moves after every sweep, towards the number wanted; neither when it is met.
        moves = np.stack([np.diff(cost), np.diff(ell)])
        wanted = np.sign(num - found.num_clusters)[:-1]
        assert np.all(np.sum(moves != 0, 0) == (wanted != 0))
        np.testing.assert_array_equal(np.sign(moves.sum(0)), wanted)
        # Steps are factors, smaller with every turn.
        signs = wanted[wanted != 0]
        turns = np.ones(len(wanted))
        turns[wanted != 0] += np.concatenate([[0], np.cumsum(signs[1:] != signs[:-1])])[: len(signs)]
        turns = np.maximum.accumulate(turns)
        factors = np.stack([np.diff(np.log(cost)), np.diff(np.log(ell))])
        assert np.all(np.abs(factors).max(0) <= 8 * np.log(1000) / 40 / turns + 1e-5)


def test_a_margin_stays_within_the_reach_of_the_weights_and_the_cost_grows_on(X):
    narrow = {**SETTINGS, "prior_scale": 0.03}
    found = tune_margin(X, num_clusters=1, max_strength=np.inf, **narrow)
    reach = 2 * 0.03 * np.sqrt(2 * np.mean(np.sum(X**2, 1)))
    ell, cost = found.trace["ell"], found.trace["cost"]
    assert 0.1 < reach < 0.2
    assert np.all(ell <= reach)
    assert cost.max() > 1
    wide = tune_margin(X, num_clusters=1, ell=5.0, **narrow)
    assert np.all(wide.trace["ell"] == 5.0)  # as wide as it was given, or narrower


def test_a_margin_grows_no_stronger_than_it_may(X):
    found, beyond = (tune_margin(X, num_clusters=1, cost=cost, max_strength=0.3, **SETTINGS) for cost in (0.1, 50.0))
    strength = found.trace["cost"] * found.trace["ell"]
    assert strength.max() == pytest.approx(0.3)
    assert np.all(found.trace["num_clusters"][strength < 0.299] > 1)  # what it was too weak to change
    assert np.all(beyond.trace["cost"] * beyond.trace["ell"] <= 5.0 + 1e-5)  # as strong as it was given, or weaker


def test_the_number_without_a_margin_is_aimed_at_where_none_is_given(X):
    found = tune_margin(X, **SETTINGS)
    assert found.num_clusters == 3
    assert not found.overflow
    # What is returned is from the end of the last of the longest stretches with the number wanted.
    kept = np.zeros(41, int)
    for t, num in enumerate(found.trace["num_clusters"]):
        kept[t + 1] = kept[t] + 1 if num == 3 else 0
    last = np.flatnonzero(kept[1:] == kept.max())[-1]
    assert kept.max() > 0
    assert len(np.unique(found.init_params["z"])) == found.trace["num_clusters"][last]
    assert (found.cost, found.ell) == (found.trace["cost"][last], found.trace["ell"][last])
    again = tune_margin(X, **SETTINGS)
    assert (again.cost, again.ell) == (found.cost, found.ell)
    np.testing.assert_array_equal(again.init_params["z"], found.init_params["z"])


def test_labels_take_the_place_of_the_chain_without_a_margin(X):
    z = np.arange(45) % 3
    start = tune_margin(X, num_clusters=3, init_params={"z": z}, **SETTINGS).trace["num_clusters"][0]
    assert start == 3
    with pytest.raises(ValueError, match="init_params has the site 'w'"):
        tune_margin(X, num_clusters=3, init_params={"z": z, "w": z}, **SETTINGS)


def test_a_full_buffer_is_told(X):
    assert tune_margin(X, num_clusters=3, init_params={"z": np.arange(45) % 16}, **SETTINGS).overflow
    without = tune_margin(X, num_clusters=1, **{**SETTINGS, "max_clusters": 2})
    assert without.overflow
    assert len(without.trace["cost"]) == 0  # no sweeps with a margin


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_sweeps": 0}, "num_sweeps must be at least 1, found 0"),
        ({"num_clusters": 0}, "num_clusters must be at least 1 or None, found 0"),
        ({"cost": 0.0}, "cost must be positive"),
        ({"ell": -1.0}, "ell must be positive"),
        ({"max_strength": 0.0}, "max_strength must be positive"),
    ],
)
def test_bad_arguments(X, arguments, message):
    with pytest.raises(ValueError, match=message):
        tune_margin(X, **arguments)
