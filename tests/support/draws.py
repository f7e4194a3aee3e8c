"""Draws of the zoo's programs without a sampler: from the prior, or in states made by hand."""

from types import SimpleNamespace

import jax
import numpy as np
from jax import random
from numpyro.handlers import seed, trace

import regbayes
from regbayes.diagnostics.arviz import assemble


def sites_and_logs(program, *args, **kwargs):
    """A draw of the program's sites, and the log density of each, compiled as a whole."""

    def run():
        sites = trace(seed(program, 0)).get_trace(*args, **kwargs)
        logs = {name: site["fn"].log_prob(site["value"]) for name, site in sites.items() if site["type"] == "sample"}
        return {name: site["value"] for name, site in sites.items()}, logs

    return jax.tree.map(np.asarray, jax.jit(run)())


def program_arguments(name, **settings):
    """The program, and its example's arguments with a small buffer where it has one."""
    program = regbayes.zoo[name].program
    args, kwargs = regbayes.zoo[name].example()
    small = {"max_clusters": 8} if name in ("isvm", "dpmnl", "dpgmm", "dpmmgm") else {}
    small |= {"max_features": 6} if name in ("ibp", "ilsvm", "mt-ilsvm") else {}
    if jax.config.jax_enable_x64:
        args = tuple(np.asarray(a, np.float64) if np.issubdtype(a.dtype, np.floating) else a for a in args)
    return program, args, {**kwargs, **small, **settings}


def prior_sites(name, shape=(2, 5), **settings):
    """(chain, draw, ...) sites from the prior of a program, and its arguments."""
    program, args, kwargs = program_arguments(name, **settings)

    def draw(key):
        found = trace(seed(program, key)).get_trace(*args, **kwargs)
        return {k: s["value"] for k, s in found.items() if s["type"] == "sample" and not s["is_observed"]}

    draws = jax.lax.map(draw, random.split(random.key(0), int(np.prod(shape))))
    sites = {site: np.asarray(values).reshape(*shape, *values.shape[1:]) for site, values in draws.items()}
    return sites, (args, kwargs)


def tree(name, sites, arguments, *, lp=True, **attrs):
    """The sites as :func:`to_datatree` would convert them."""
    shape = next(iter(sites.values())).shape[:2]
    fields = {"log_joint": np.random.default_rng(0).normal(size=shape)} if lp else {}
    sampler = SimpleNamespace(model=regbayes.zoo[name].program, name=f"{name} prior")
    return assemble(sampler, sites, fields, arguments, overflow=False, attrs=attrs)
