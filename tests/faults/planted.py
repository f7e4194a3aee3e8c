"""Faults that a maintainer could make, for ``make faults``: each is one replacement in one file of the library."""

import pathlib
from typing import NamedTuple

TESTS = pathlib.Path(__file__).parents[1]


class Fault(NamedTuple):
    """What is replaced in a file by what, and what that means.

    - **file** - from the tree's root.
    - **old** - the text replaced; it stands there exactly once.
    - **new** - what stands there instead.
    - **why** - the fault in words.
    - **named** - files of ``tests/``, or single tests in them, where it must be seen; by default the file's mirror.
    """

    file: str
    old: str
    new: str
    why: str
    named: tuple[str, ...] = ()

    @property
    def tests(self) -> tuple[str, ...]:
        """pytest's arguments, from the tree's root."""
        path = pathlib.PurePath(self.file)
        mirror = sorted((TESTS / path.parent).glob(f"test_{path.stem}*.py"))
        return tuple(f"tests/{name}" for name in self.named) or tuple(
            path.relative_to(TESTS.parent).as_posix() for path in mirror
        )


ZOO = "regbayes/test_zoo.py"
FACTORS = "models/test_factors.py"
LAWS = "models/laws/test_distributions.py"
SVM = "inference/kernels/test_svm.py"
ISVM = "inference/kernels/test_isvm.py"
DPGMM = "inference/kernels/test_dpgmm.py"
DPMMGM = "inference/kernels/test_dpmmgm.py"
DPMNL = "inference/kernels/test_dpmnl.py"
IBP = "inference/kernels/test_ibp.py"
ILSVM = "inference/kernels/test_ilsvm.py"
TOPICS = "inference/kernels/test_topics.py"
KERNEL = "inference/engine/test_kernel.py"
LOOP = "inference/engine/test_loop.py"
LIMITS_TOPICS = "inference/limits/test_limits_topics.py"
ENUMERATED = "test_partitions_by_enumeration"


def conforms(name: str, kernel: str) -> tuple[str]:
    """The identity of every move of a kernel, at its card's example."""
    return (f"{ZOO}::test_every_move_conforms_to_the_program[{name}-{kernel}]",)


MODELS = [
    Fault(
        "models/svm.py",
        'hinge("margin", f, 2 * y - 1, cost=cost, ell=ell)',
        'hinge("margin", f, y, cost=cost, ell=ell)',
        "the hinge is given labels 0 and 1 for signs",
        conforms("svm", "augmentation"),
    ),
    Fault(
        "models/multiclass_svm.py",
        "X = check_features(X, intercept=intercept)",
        "X = check_features(X)",
        "the program forgets the intercept",
        (f"{FACTORS}::test_without_labels_the_programs_predict",),
    ),
    Fault(
        "models/svr.py",
        'epsilon_insensitive("tube", f, y, cost=cost, epsilon=epsilon)',
        'epsilon_insensitive("tube", f, y, cost=cost, epsilon=epsilon / 2)',
        "epsilon is the whole width of the tube",
        conforms("svr", "augmentation"),
    ),
    Fault(
        "models/isvm.py",
        'hinge("margin", f, 2 * y - 1, cost=cost, ell=ell)',
        'hinge("margin", f, 2 * y - 1, cost=cost / 2, ell=ell)',
        "c for 2c in the binary hinge",
        (f"{ISVM}::test_program_is_the_generative_page",),
    ),
    Fault(
        "models/dpmnl.py",
        "dist.Normal(m, jnp.sqrt(sigma2 / k0)).to_event(2)",
        "dist.Normal(m, jnp.sqrt(sigma2 * k0)).to_event(2)",
        "the means' prior is narrower the less it is worth",
        (f"{DPMNL}::test_program_is_the_generative_page",),
    ),
    Fault(
        "models/dpgmm.py",
        "check_slots(max_clusters)\n    alpha = hyper",
        "check_slots(max_clusters)\n    X = X - X.mean(0)\n    alpha = hyper",
        "the data are centred under a prior that is not",
        (f"{DPGMM}::test_every_move_conforms_to_the_program",),
    ),
    Fault(
        "models/dpmmgm.py",
        "z, cost=cost, ell=ell, competitors=occupied)",
        "z, cost=cost, ell=ell)",
        "empty clusters compete for the margin",
        (f"{DPMMGM}::test_the_margin_is_over_occupied_clusters",),
    ),
    Fault(
        "models/ctm.py",
        "FlooredDirichlet(alpha_0 / num_topics * jnp.ones(num_topics, dtype))",
        "FlooredDirichlet(alpha_0 * jnp.ones(num_topics, dtype))",
        "alpha_0 for alpha_0/T, as the text prints it",
        conforms("ctm", "collapsed"),
    ),
    Fault(
        "models/mmctm.py",
        'multiclass_hinge("margin", x @ eta.T, y, cost=cost, ell=ell)',
        'multiclass_hinge("margin", x @ eta.T, y, cost=cost / 2, ell=ell)',
        "c for 2c in the margin between clusters",
        conforms("mmctm", "collapsed"),
    ),
    Fault(
        "models/medlda.py",
        "f = corpus.proportions(z, num_topics, jnp.result_type(float)) @ eta.T",
        "f = corpus.counts(z, num_topics, jnp.result_type(float)) @ eta.T",
        "classes see counts of topics, not shares",
        conforms("medlda", "collapsed"),
    ),
    Fault(
        "models/medlda.py",
        'epsilon_insensitive("tube", f, y, cost=cost, epsilon=epsilon)',
        'epsilon_insensitive("tube", f, y, cost=cost)',
        "a regression's own epsilon is not passed on",
        conforms("medlda-regression", "collapsed"),
    ),
    Fault(
        "models/ibp.py",
        "dist.Normal(Z @ W.T, noise_scale).to_event(2)",
        "dist.Normal(Z @ W.T, noise_scale**2).to_event(2)",
        "the noise's variance for its standard deviation",
        (f"{IBP}::test_the_program_is_what_its_page_says",),
    ),
    Fault(
        "models/ilsvm.py",
        "jnp.ones_like(X[:, :intercept])",
        "jnp.zeros_like(X[:, :intercept])",
        "the intercept's input is 0",
        (f"{ILSVM}::test_predictions_are_their_definition",),
    ),
    Fault(
        "models/mt_ilsvm.py",
        "jnp.repeat(rows, T), jnp.tile(jnp.arange(T), n)",
        "jnp.repeat(rows, T), jnp.repeat(jnp.arange(T), n)",
        "a matrix's columns are given to the wrong tasks",
        (f"{ILSVM}::test_the_two_ways_to_give_tasks_agree",),
    ),
    Fault(
        "models/factors.py",
        "rivals = ~own & competitors",
        "rivals = competitors",
        "a datum's own class asks for a margin over itself",
    ),
    Fault(
        "models/factors.py",
        "with scale(scale=1.0 / factor_scale):",
        "with scale(scale=1.0):",
        "omega's law is raised to the factor's power",
    ),
]

OF_LAWS = [
    Fault(
        "models/laws/distributions.py",
        "large = jnp.maximum(b + chi / 2 + jnp.sqrt(b * chi + chi**2 / 4), tiny)",
        "large = jnp.maximum(b + chi / 2 + jnp.sqrt(b * chi + chi**2 / 2), tiny)",
        "a wrong root in the draw of omega",
    ),
    Fault(
        "models/laws/distributions.py",
        "return self._scale * self._solve(half + noise, transpose=True)",
        "return self._scale * self._solve(half + noise, transpose=False)",
        "a transposed root of the information matrix",
    ),
    Fault(
        "models/laws/distributions.py",
        "-2 * self.cost * self.ell + 2 * (self.cost * s) ** 2 + log_ndtr",
        "-2 * self.cost * self.ell + (self.cost * s) ** 2 + log_ndtr",
        "c for 2c in the weight of a new cluster",
    ),
    Fault(
        "models/laws/distributions.py",
        "gammaln(alpha + n) + log_blocks + log_slots",
        "gammaln(alpha + n) + log_blocks",
        "the restaurant's law forgets the slots",
    ),
    Fault(
        "models/laws/buffet.py",
        "return num * jnp.log(alpha) - self.mean_num_features + log_columns + log_slots",
        "return num * jnp.log(alpha) - self.mean_num_features + log_columns",
        "the buffet's law forgets the slots",
        (f"{IBP}::test_labelled_matrices_share_out_the_probability_of_their_set",),
    ),
    Fault(
        "models/laws/buffet.py",
        "row = used & ((i == first) | (u * i < counts))",
        "row = used & ((i == first) | (u * (i + 1) < counts))",
        "guests of the buffet counted from 2",
        (f"{IBP}::test_draws_of_the_prior_have_its_probabilities",),
    ),
    Fault(
        "models/laws/families.py",
        "return new - self.log_normaliser(tau, count, variance) + self.base(X, variance)",
        "return new + self.base(X, variance)",
        "a marginal that is not divided by the prior's normaliser",
    ),
    Fault(
        "models/laws/normal_wishart.py",
        "self.degrees + size,\n",
        "self.degrees + size - 1,\n",
        "degrees of freedom of a posterior off by one",
        (f"{DPGMM}::test_clusters_have_the_density_of_their_students_in_turn",),
    ),
    Fault(
        "models/laws/normal_wishart.py",
        "multigammaln(self.degrees / 2, d) + log_jacobian + log_normal",
        "multigammaln(self.degrees / 2, d) + log_normal",
        "the Wishart density of a root forgets the Jacobian",
        (f"{DPGMM}::test_components_have_their_wishart_and_normal_density",),
    ),
    Fault(
        "models/laws/normal_wishart.py",
        "counted = jnp.arange(block) + start >= b * block",
        "counted = jnp.arange(block) + start >= 0",
        "rows of the last block are counted twice",
        (f"{DPGMM}::test_statistics_are_summed_in_blocks",),
    ),
    Fault(
        "models/laws/corpora.py",
        "return jnp.sum(used) + jnp.sum(gammaln(total) - gammaln(total + lengths))",
        "return jnp.sum(used)",
        "topics of tokens without their normaliser",
        (f"{TOPICS}::test_topics_of_tokens_are_a_distribution",),
    ),
    Fault(
        "models/laws/corpora.py",
        "return jnp.where(self.known < 0, drawn, self.known)",
        "return jnp.where(self.known <= 0, drawn, self.known)",
        "landmarks of the first cluster are drawn anew",
        (f"{TOPICS}::test_known_labels_stay",),
    ),
    Fault(
        "models/laws/gammas.py",
        "shift = math.log(uniform(state)) / a\n",
        "shift = math.log(uniform(state))\n",
        "gamma variates of small shapes are not boosted by their shape",
        (f"{TOPICS}::test_gamma_variates",),
    ),
    Fault(
        "models/laws/arguments.py",
        "if found[0] < 0 or found[-1] >= limit or",
        "if found[0] < 0 or found[-1] > limit or",
        "a label one beyond the classes is let through",
    ),
]

ENGINE = [
    Fault(
        "inference/engine/kernel.py",
        "return state._replace(z=z, rng_key=rng_key, log_joint=log_joint, num_active",
        "return state._replace(z=z, rng_key=rng_key, log_joint=state.log_joint, num_active",
        "a sweep keeps a stale log joint",
        (f"{ZOO}::test_kernel_keeps_the_contract[svm-slice]",),
    ),
    Fault(
        "inference/engine/kernel.py",
        "overflow = functools.reduce(jnp.logical_or, full, overflow)",
        "overflow = functools.reduce(jnp.logical_and, full, overflow)",
        "a full buffer is never told",
        (f"{LOOP}::test_a_full_buffer_is_told",),
    ),
    Fault(
        "inference/engine/kernel.py",
        "z = {**z, **move.start(key, z, constants), **given}",
        "z = {**z, **move.start(key, z, constants)}",
        "moves start where they like, not at init_params",
        (f"{KERNEL}::test_a_start_that_is_given_is_taken",),
    ),
    Fault(
        "inference/engine/kernel.py",
        "state = lax.fori_loop(0, thinning, lambda",
        "state = lax.fori_loop(0, 1, lambda",
        "the loop does not thin",
        (LOOP,),
    ),
    Fault(
        "inference/engine/move.py",
        "keep = (1 - overrelaxation**2) ** 0.5",
        "keep = 1 - overrelaxation",
        "over-relaxed draws have too little noise",
        (f"{SVM}::test_kernels_agree_with_nuts[svm-augmentation]",),
    ),
    Fault(
        "inference/engine/move.py",
        "site: z[site] + (mean - z[site].mean(-2))[..., None, :]",
        "site: z[site] + mean[..., None, :]",
        "a common shift is added to the mean that was",
        conforms("multiclass-svm", "augmentation"),
    ),
    Fault(
        "inference/engine/checkpoint.py",
        'return self.found["done"], load_state(self.path / f"state-{self.num_saves}.npz")',
        'return self.found["done"], load_state(self.path / f"state-{self.num_saves}.npz")._replace(\n'
        "            rng_key=state.rng_key\n        )",
        "a checkpoint forgets the key",
        (f"{LOOP}::test_an_interrupted_run_goes_on_bit_for_bit[svm-slice]",),
    ),
    Fault(
        "inference/engine/checkpoint.py",
        "os.replace(partial, path)",
        "os.replace(partial, path) if not path.exists() else partial.unlink()",
        "a state is not written over an older one",
        (LOOP, f"{ZOO}::test_a_saved_state_is_recognised"),
    ),
    Fault(
        "inference/engine/loop.py",
        '"num_chains": num_chains, "thinning": thinning}\n',
        '"num_chains": num_chains}\n',
        "a checkpoint forgets the thinning",
        (LOOP,),
    ),
    Fault(
        "inference/engine/loop.py",
        'self.store.write(drawn, {"log_joint"',
        'self.store.write(0, {"log_joint"',
        "log joints of every chunk are written over the first's",
        (LOOP,),
    ),
    Fault(
        "inference/engine/compiled.py",
        'return "array", value.shape, str(value.dtype), digest(np.asarray(value))',
        'return "array", value.shape, str(value.dtype)',
        "kernels around arrays of other values share code",
        (f"{LOOP}::test_what_a_function_is_made_around_tells_it_from_others",),
    ),
    Fault(
        "inference/engine/compiled.py",
        "return np.array(leaf) if isinstance(leaf, np.ndarray) else leaf",
        "return leaf",
        "arguments are not copied, though their owner may change them",
        (f"{LOOP}::test_arguments_are_copies_of_arrays_that_their_owner_may_change",),
    ),
    Fault(
        "inference/engine/predictions.py",
        "if slots < n and jnp.any(occupied >= slots):",
        "if slots < n and jnp.any(occupied > slots):",
        "truncated draws predict",
        (f"{ISVM}::test_draws_are_checked",),
    ),
    Fault(
        "inference/engine/target.py",
        "self.given: Sites = dict(kwargs.get(GIBBS_SITES_KWARG, {}))",
        "self.given: Sites = {}",
        "sites of other blocks are forgotten",
        (f"{KERNEL}::test_the_hierarchical_example_agrees_with_nuts",),
    ),
]

MOVES = [
    Fault(
        "inference/moves/augmentation.py",
        "return A.T @ (sgn * cost * (1 + weight * tau))",
        "return A.T @ (sgn * cost * (1 - weight * tau))",
        "a wrong sign in the weights' conditional",
        conforms("svm", "augmentation"),
    ),
    Fault(
        "inference/moves/augmentation.py",
        "return sgn, sgn * (m - ell * (y != k))",
        "return sgn, sgn * (m - ell * (y == k))",
        "the margin is asked of the right class",
        conforms("multiclass-svm", "augmentation"),
    ),
    Fault(
        "inference/moves/weights.py",
        "return dist.Normal(0.0, prior_scale / L**0.5)",
        "return dist.Normal(0.0, prior_scale / L)",
        "the mean of the classes' weights has too narrow a prior",
        conforms("multiclass-svm", "augmentation"),
    ),
    Fault(
        "inference/moves/weights.py",
        "return InformationNormal(h, P + jnp.eye(d, dtype=A.dtype) * self.precision)",
        "return InformationNormal(h, P + jnp.eye(d, dtype=A.dtype))",
        "a unit prior for the classifiers of clusters",
        (f"{ISVM}::test_every_move_conforms_to_the_program[multinomial-2-settings4]",),
    ),
    Fault(
        "inference/moves/margin_weights.py",
        "law = InformationNormal(h + gradient, P - hessian)",
        "law = InformationNormal(h + gradient, P + hessian)",
        "a wrong sign of the prior's curvature",
        (f"{KERNEL}::test_the_move_read_off_any_program_conforms[plain]",),
    ),
    Fault(
        "inference/moves/fits.py",
        "slope = 2 * cost * ndtr(ratio)",
        "slope = cost * ndtr(ratio)",
        "c for 2c in the slope of the averaged hinge",
    ),
    Fault(
        "inference/moves/hyper.py",
        "a, b, n = prior.concentration, prior.rate - jnp.log(x), len(rest",
        "a, b, n = prior.concentration, prior.rate + jnp.log(x), len(rest",
        "a wrong sign in the conditional of alpha",
        (f"{DPGMM}::test_every_move_conforms_to_the_program",),
    ),
    Fault(
        "inference/moves/labels.py",
        "new = fresh[j] * (mixture.concentration / jnp.sum(counts == 0))",
        "new = fresh[j] * mixture.concentration",
        "every empty slot has the weight of all",
        (f"{ISVM}::{ENUMERATED}[collapsed-2]",),
    ),
    Fault(
        "inference/moves/labels.py",
        "log_keep = jnp.where(counts[rank] > 0, 0.0, jnp.log(v) / concentration)",
        "log_keep = jnp.where(counts[rank] > 0, 0.0, jnp.log(v) * concentration)",
        "sticks leave a wrong remainder",
    ),
    Fault(
        "inference/moves/labels.py",
        "return _refresh_empty(key_empty, z, counts, parts), None, full",
        "return z, None, full",
        "emptied slots keep their parameters",
    ),
    Fault(
        "inference/moves/split_merge.py",
        "accepted = heights[1] < log_first + log_second - screen",
        "accepted = jnp.array(True)",
        "the Metropolis correction of the second stage is skipped",
        (f"{ISVM}::{ENUMERATED}[sm-2]",),
    ),
    Fault(
        "inference/moves/split_merge.py",
        "log_first -= _log_anchors(anchors, log_weights, num, now, now_at)",
        "log_first -= 0.0",
        "the chance of the anchors on the way back is dropped",
        (f"{ISVM}::{ENUMERATED}[sm-2]",),
    ),
    Fault(
        "inference/moves/split_merge.py",
        "ratio, guess = of(then, log_chances[1]) - of(now.T, log_chances[0])",
        "ratio, guess = of(then, log_chances[1]) - of(now.T, log_chances[1])",
        "the way back is taken with the chances of the way there",
        (f"{DPGMM}::{ENUMERATED}",),
    ),
    Fault(
        "inference/moves/features.py",
        "log_prior = j * jnp.log(program.concentration / len(program.rows)) - gammaln(j + 1.0)",
        "log_prior = j * jnp.log(program.concentration) - gammaln(j + 1.0)",
        "own features with rate alpha, not alpha/n",
        conforms("ibp", "collapsed"),
    ),
    Fault(
        "inference/moves/features.py",
        "return jax.tree.map(lambda a, b: jnp.where(log_u[p] < gain, a, b), new, now)",
        "return jax.tree.map(lambda a, b: jnp.where(gain > -jnp.inf, a, b), new, now)",
        "flips of a row are always accepted",
        (f"{IBP}::test_features_by_enumeration",),
    ),
    Fault(
        "inference/moves/features.py",
        "prior.rate + harmonic(len(rest",
        "prior.rate + (len(rest",
        "n for the harmonic number in the conditional of alpha",
        (f"{IBP}::test_every_move_conforms_to_the_program",),
    ),
    Fault(
        "inference/moves/sticks.py",
        "pi = dist.Beta(jnp.maximum(m, 1), n - m + 1).sample(key_pi)",
        "pi = dist.Beta(jnp.maximum(m, 1), n - m + 2).sample(key_pi)",
        "sticks are drawn as if there were one row more",
        (f"{IBP}::test_features_by_enumeration[ibp_slice-four rows]",),
    ),
    Fault(
        "inference/moves/sticks.py",
        "return SHARPNESS * (jnp.log(others) - jnp.log(jnp.minimum(others, sticks.pi[k])))",
        "return SHARPNESS * (jnp.log(jnp.minimum(others, sticks.pi[k])) - jnp.log(others))",
        "a wrong sign in the slice's density",
        conforms("ibp", "slice"),
    ),
    Fault(
        "inference/moves/slices.py",
        "height = log_joint - self._log_reference(u) + jnp.log1p(-uniforms[0])",
        "height = log_joint - self._log_reference(u)",
        "the slice lies at the current point's own height",
        (f"{SVM}::test_kernels_agree_with_nuts[svm-slice]",),
    ),
    Fault(
        "inference/moves/slices.py",
        "return log_joint + size * t",
        "return log_joint",
        "the density of a length forgets its Jacobian",
        conforms("svm", "augmentation"),
    ),
    Fault(
        "inference/moves/row_slices.py",
        "return -(kappa + u.shape[-1]) / 2 * jnp.log1p(jnp.sum(u**2, -1) / kappa)",
        "return -kappa / 2 * jnp.log1p(jnp.sum(u**2, -1) / kappa)",
        "the t of a row without its dimensions",
        conforms("dpmnl", "collapsed"),
    ),
    Fault(
        "inference/moves/gaussian_clusters.py",
        "weight = r / (r - 1)",
        "weight = r / (r + 1)",
        "a datum is taken out of its cluster by the formula for putting it in",
        conforms("dpgmm", "collapsed"),
    ),
    Fault(
        "inference/moves/gaussian_clusters.py",
        "logits = logits - 2 * cost * (loss + jnp.where(counts == 0, others, 0.0))",
        "logits = logits - 2 * cost * loss",
        "a new cluster does not press on the others' margins",
        conforms("dpmmgm", "collapsed"),
    ),
    Fault(
        "inference/moves/gaussian_hyper.py",
        "jnp.sum(occupied) * mu.shape[1] / 2, law.rate",
        "jnp.sum(occupied) / 2, law.rate",
        "the strength's conditional counts a cluster once, not d times",
        (f"{DPGMM}::test_every_move_conforms_to_the_program",),
    ),
    Fault(
        "inference/moves/scatter_lines.py",
        "return (self.exponent + 1) * log_s - ",
        "return self.exponent * log_s - ",
        "the density of log s forgets its Jacobian",
        (f"{DPGMM}::test_every_move_conforms_to_the_program",),
    ),
    Fault(
        "inference/moves/tokens.py",
        "w = n[d] - (old[:, None] == topics) + tokens.base",
        "w = n[d] + tokens.base",
        "a token counts itself",
        (f"{TOPICS}::test_moves_conform_without_compiled_code",),
    ),
    Fault(
        "inference/moves/tokens.py",
        "shifts = jnp.stack([zero, -y - epsilon, y - epsilon], axis=1)",
        "shifts = jnp.stack([zero, -y + epsilon, y + epsilon], axis=1)",
        "a wrong sign of epsilon in the tube of documents",
        conforms("medlda-regression", "collapsed"),
    ),
    Fault(
        "inference/moves/documents.py",
        'terms = jnp.log(z["gamma"]) - logits',
        'terms = jnp.log(z["gamma"])',
        "the chance that a label was proposed is dropped",
        (f"{TOPICS}::test_documents_redrawn_by_enumeration",),
    ),
    Fault(
        "inference/moves/documents.py",
        "lambda mu0: FlooredDirichlet(program.alpha_1 * mu0 + M).to_event(1)",
        "lambda mu0: FlooredDirichlet(program.alpha_1 / M.shape[1] + M).to_event(1)",
        "clusters' proportions forget what they have in common",
        conforms("ctm", "collapsed"),
    ),
]

KERNELS = [
    Fault(
        "inference/kernels/svm.py",
        "ell, X.dtype), cost, prior_scale**-2.0)",
        "ell, X.dtype), cost, prior_scale**-1.0)",
        "the prior's precision is the inverse of its scale",
        (f"{SVM}::test_at_large_beta_a_sweep_takes_the_step_of_the_limit[svm]",),
    ),
    Fault(
        "inference/kernels/multiclass_svm.py",
        "cost, ell, prior_scale**-2.0)",
        "cost, 1.0, prior_scale**-2.0)",
        "the kernel has a margin of 1, whatever it was given",
        conforms("multiclass-svm", "augmentation"),
    ),
    Fault(
        "inference/kernels/svr.py",
        "return Hinges(columnwise(A), tau, cost, prior_scale**-2.0)",
        "return Hinges(columnwise(A), tau, cost, prior_scale**2.0)",
        "the prior's variance for its precision",
        (f"{SVM}::test_at_large_beta_a_sweep_takes_the_step_of_the_limit[svr]",),
    ),
    Fault(
        "inference/kernels/isvm.py",
        "return law.conjugate(tau + sums[:, :-1], count + sums[:, -1], variance).to_event(1)",
        "return law.conjugate(tau + sums[:, :-1], count + sums[:, -1] - 1, variance).to_event(1)",
        "a cluster's size off by one",
        conforms("isvm", "slice"),
    ),
    Fault(
        "inference/kernels/isvm.py",
        "return r[:-1] @ scores, r[:-1] @ vote + r[-1] / L",
        "return r[:-1] @ scores, r[:-1] @ vote",
        "votes leave out a new component",
        (f"{ISVM}::test_predictions_are_their_definition",),
    ),
    Fault(
        "inference/kernels/isvm.py",
        "prior.concentration + (len(X) + len(z[",
        "prior.concentration + (len(X) + 0 * len(z[",
        "the variance forgets that the means have it too",
        (f"{ISVM}::test_every_move_conforms_to_the_program[gaussian-2-settings0]",),
    ),
    Fault(
        "inference/kernels/dpmnl.py",
        "+ k0 * (mu - m) ** 2\n",
        "\n",
        "the variances' conditional drops the means' prior",
        conforms("dpmnl", "collapsed"),
    ),
    Fault(
        "inference/kernels/dpmnl.py",
        "log_weight = jnp.where(weighted, log_density, 0.0)",
        "log_weight = jnp.zeros_like(log_density)",
        "draws are not weighed by their density of the new input",
        (f"{DPMNL}::test_predictions_by_enumeration",),
    ),
    Fault(
        "inference/kernels/dpgmm.py",
        "return jnp.logaddexp(jax.nn.logsumexp(old), new) - jnp.log(len(X) + alpha)",
        "return jax.nn.logsumexp(old) - jnp.log(len(X) + alpha)",
        "the predictive density leaves out a new cluster",
        (f"{DPGMM}::test_log_density_is_its_definition",),
    ),
    Fault(
        "inference/kernels/dpgmm.py",
        "sizes = size.at[k].set(left)",
        "sizes = size",
        "a left-out datum is counted among the others",
        ("diagnostics/test_scores.py::test_pointwise_density_of_gaussian_clusters_is_the_program_s",),
    ),
    Fault(
        "inference/kernels/dpmmgm.py",
        "log_one - log_slots - log_chance\n",
        "log_one - log_slots\n",
        "data are scattered without the chance of the way there",
        (f"{DPMMGM}::{ENUMERATED}",),
    ),
    Fault(
        "inference/kernels/dpmmgm.py",
        "active = occupied[k] & (jnp.sum(occupied) > 1)",
        "active = occupied[k]",
        "a single cluster pays a margin over none",
        (f"{DPMMGM}::test_weights_of_a_single_cluster_keep_their_prior",),
    ),
    Fault(
        "inference/kernels/ilsvm.py",
        "log_odds = jnp.log(counts) - jnp.log(n + 1.0 - counts)",
        "log_odds = jnp.log(counts)",
        "features of new data have wrong odds",
        (f"{ILSVM}::test_predictions_are_their_definition",),
    ),
    Fault(
        "inference/kernels/ilsvm.py",
        "jnp.max(s + ell * ~own, axis=-1)",
        "jnp.max(s + ell * own, axis=-1)",
        "labels' margin is asked of the right class",
        conforms("ilsvm", "collapsed"),
    ),
    Fault(
        "inference/kernels/mt_ilsvm.py",
        "jnp.tile(task, 2)",
        "jnp.repeat(task, 2)",
        "the tubes' upper sides go to other tasks",
        (f"{ILSVM}::test_every_move_of_regression_tasks_conforms_to_the_program",),
    ),
    Fault(
        "inference/kernels/mt_ilsvm.py",
        "f, votes = (jnp.take_along_axis(value, own[:, None], 1)[:, 0] for value in (f, votes))",
        "f, votes = f[:, 0], votes[:, 0]",
        "every row is predicted by the first task",
        (f"{ILSVM}::test_predictions_of_tasks_are_their_definition",),
    ),
    Fault(
        "inference/kernels/ctm.py",
        'PROGRAM.predict(sites, corpus, {"alpha": alpha}, num_sweeps',
        "PROGRAM.predict(sites, corpus, {}, num_sweeps",
        "a prediction forgets alpha",
        (f"{TOPICS}::test_labels_of_new_documents_by_enumeration[ctm]",),
    ),
    Fault(
        "inference/kernels/mmctm.py",
        "jnp.where(clusters == best, second, top)",
        "jnp.where(clusters == best, top, second)",
        "the best cluster is its own rival",
        conforms("mmctm", "collapsed"),
    ),
    Fault(
        "inference/kernels/medlda.py",
        "base = jnp.full((1, T), alpha / T, dtype)",
        "base = jnp.full((1, T), alpha, dtype)",
        "alpha for alpha/T in the sweep over tokens",
        conforms("medlda", "collapsed"),
    ),
    Fault(
        "inference/kernels/medlda.py",
        "A, tau = tube_rows(x, check_targets(y, len(x)).astype(x.dtype), epsilon)",
        "A, tau = tube_rows(x, check_targets(y, len(x)).astype(x.dtype), 2 * epsilon)",
        "a tube of twice the width",
        conforms("medlda-regression", "collapsed"),
    ),
    Fault(
        "inference/kernels/ibp.py",
        "moves = [concentration_of_buffet(), *integrated",
        "moves = [*integrated",
        "no move redraws alpha",
        (f"{IBP}::test_every_move_conforms_to_the_program",),
    ),
]

LIMITS = [
    Fault(
        "inference/limits/svm.py",
        "return complementarity, np.sum(residual(problem, W, p) ** 2) / (2 * problem.precision)",
        "return complementarity, np.sum(residual(problem, W, p) ** 2) / problem.precision",
        "a gap that is not primal less dual",
        ("inference/limits/test_limits_svm.py::test_gap_is_primal_less_dual",),
    ),
    Fault(
        "inference/limits/svm.py",
        "scores = X @ self.coef_.T + self.intercept_\n",
        "scores = X @ self.coef_.T\n",
        "a prediction forgets the intercept",
        ("inference/limits/test_limits_svm.py",),
    ),
    Fault(
        "inference/limits/svm.py",
        "W = accept(problem, W, (W + t * step for t in 0.5 ** np.arange(5)), trace)",
        "W = W + step\n        trace.append(objective(problem, W))",
        "EM steps are taken also where they raise the objective",
        ("inference/limits/test_limits_svm.py",),
    ),
    Fault(
        "inference/limits/sweeps.py",
        "least = xp.min(Q, axis=0)",
        "least = xp.sort(Q, axis=0)[min(1, B - 1)]",
        "data go to the second-best cluster",
        ("inference/limits/test_dp_means.py::test_no_update_raises_the_objective",),
    ),
    Fault(
        "inference/limits/sweeps.py",
        "kappa = num_classes / (num_classes - 1) if num_classes > 2 else 1.0\n        past",
        "kappa = 1.0\n        past",
        "a cluster of one datum is priced as if there were two classes",
        ("inference/limits/test_m2dpm.py::test_host_and_devices_agree_on_a_pass",),
    ),
    Fault(
        "inference/limits/descent.py",
        "return eta, np.maximum(ell - reach * tau, 0), reach * tau**2 / 2",
        "return eta, np.maximum(ell - reach * tau, 0), reach * tau**2",
        "the price of a new classifier is doubled",
        ("inference/limits/test_m2dpm.py::test_one_point_classifier_is_optimal",),
    ),
    Fault(
        "inference/limits/divergences.py",
        'return np.sum(mu, axis=1) if likelihood == "poisson" else np.zeros(len(mu)), b',
        "return np.zeros(len(mu)), b",
        "Poisson's divergence without the means' sum",
        ("inference/limits/test_dp_means.py::test_divergences_are_their_definitions",),
    ),
    Fault(
        "inference/limits/dp_means.py",
        "penalty = outcome.dearest if outcome.dearest > 0 else 1.0",
        "penalty = outcome.dearest / 2 if outcome.dearest > 0 else 1.0",
        "at the penalty found a single point would open a cluster",
    ),
    Fault(
        "inference/limits/m2dpm.py",
        "return np.argmin(self._divergences(validate_data(self, X, reset=False, dtype=np.float64)), axis=1)",
        "return np.argmax(self._divergences(validate_data(self, X, reset=False, dtype=np.float64)), axis=1)",
        "new data go to the furthest cluster",
        ("inference/limits/test_m2dpm.py::test_prediction_by_the_nearest_cluster",),
    ),
    Fault(
        "inference/limits/feature_means.py",
        "price += self.losses(off + state.eta[:, k]) - self.losses(off)",
        "price += self.losses(off) - self.losses(off + state.eta[:, k])",
        "data take the features that their margin dislikes",
    ),
    Fault(
        "inference/limits/max_margin_dp_means.py",
        "rival = np.where(np.arange(K) == top[:, None], second[:, None], first[:, None])",
        "rival = np.where(np.arange(K) == top[:, None], first[:, None], second[:, None])",
        "a cluster is its own rival",
    ),
    Fault(
        "inference/limits/improvement.py",
        "if not found < self.objective - ROUNDING * abs(self.objective):",
        "if not found < 1.1 * self.objective:",
        "updates that raise the objective a little are taken",
        (
            "inference/limits/test_feature_means.py::test_no_update_raises_the_objective",
            "inference/limits/test_max_margin_dp_means.py::test_no_update_raises_the_objective",
        ),
    ),
    Fault(
        "inference/limits/topics.py",
        'words += hyper["alpha"] * kl_divergence(self.centres, self.theta)',
        'words += hyper["alpha"] * kl_divergence(self.theta, self.centres)',
        "a divergence the wrong way round",
        (
            f"{LIMITS_TOPICS}::test_no_update_raises_the_objective",
            f"{LIMITS_TOPICS}::test_the_objective_is_the_tempered_program",
        ),
    ),
    Fault(
        "inference/limits/estimator.py",
        "return scores[:, 1] - scores[:, 0] if scores.shape[1] == 2 else scores",
        "return scores[:, 0] - scores[:, 1] if scores.shape[1] == 2 else scores",
        "two classes are taken for each other",
        ("inference/limits/test_feature_means.py",),
    ),
]

MEAN_FIELD = [
    Fault(
        "inference/mean_field/isvm_equations.py",
        "concentration + np.cumsum(mass[::-1])[::-1][1:]",
        "concentration + np.cumsum(mass)[1:]",
        "a wrong remainder of the sticks",
        ("inference/mean_field/test_mean_field_isvm.py::test_no_update_raises_the_objective",),
    ),
    Fault(
        "inference/mean_field/isvm_joint.py",
        "if omega[y] > 0 and (down < 0 or margin[y] < margin[down]):",
        "if omega[y] > 0 and (down < 0 or margin[y] > margin[down]):",
        "multipliers move from the label with the largest margin",
        ("inference/mean_field/test_mean_field_isvm.py::test_joint_assignments_are_optimal",),
    ),
    Fault(
        "inference/mean_field/ilsvm_equations.py",
        "np.fill_diagonal(U, np.sum(psi, axis=0))",
        "U = U + 0.0",
        "E z^2 is taken for (E z)^2 in the loadings",
        ("inference/mean_field/test_mean_field_ilsvm.py::test_no_update_raises_the_objective",),
    ),
    Fault(
        "inference/mean_field/ilsvm_equations.py",
        "theta = linear[r, k] + psi[r, k] * gram[k, k]",
        "theta = linear[r, k]",
        "a feature explains away itself",
        ("inference/mean_field/test_mean_field_ilsvm.py",),
    ),
    Fault(
        "inference/mean_field/medlda_descent.py",
        "self.topics = Topics.of(self.hyper.beta + self.words.topics.T, self.hyper.beta)",
        "self.topics = Topics.of(1 + self.words.topics.T, self.hyper.beta)",
        "topics are updated with another prior",
        ("inference/mean_field/test_mean_field_medlda.py::test_no_update_raises_the_objective",),
    ),
    Fault(
        "inference/mean_field/medlda_words.py",
        "w[up] += at",
        "w[up] += at / 2",
        "half of the multipliers that move is lost",
        ("inference/mean_field/test_mean_field_medlda.py",),
    ),
    Fault(
        "inference/mean_field/conjugate.py",
        "return s.digamma(tau) - xp.log(c), xp.sum(tau / c, axis=-1), log_normaliser",
        "return s.digamma(tau) + xp.log(c), xp.sum(tau / c, axis=-1), log_normaliser",
        "a wrong sign in the expected log rate",
        (
            "inference/mean_field/test_mean_field_isvm.py::test_expectations_are_derivatives_of_the_families_normalisers",
        ),
    ),
]

OTHER_INFERENCE = [
    Fault(
        "inference/duality/ascent.py",
        "most = cap if k == k_true else 0.0",
        "most = np.inf if k == k_true else 0.0",
        "the dual solver ignores the cost's cap",
        ("inference/duality/test_crammer_singer.py",),
    ),
    Fault(
        "inference/duality/crammer_singer.py",
        "while not best.converged and n_iter < max_iter:",
        "while not best.converged and n_iter < 1:",
        "the dual solver stops at once",
    ),
    Fault(
        "inference/duality/interior_point.py",
        "dW, dp, dz = direction(centring * mu - p * z - dp * dz)",
        "dW, dp, dz = direction(centring * mu - dp * dz)",
        "the corrector forgets where it stands",
        ("inference/duality/test_crammer_singer.py",),
    ),
    Fault(
        "inference/duality/interior_point.py",
        "rhs = -residual - (c * fixed).T @ X",
        "rhs = residual - (c * fixed).T @ X",
        "a wrong sign of the dual residual",
        ("inference/duality/test_crammer_singer.py",),
    ),
    Fault(
        "inference/regbayes/constraints.py",
        "finite = float(np.sum(mu * self.y + self.epsilon * np.abs(mu)))",
        "finite = float(np.sum(mu * self.y - self.epsilon * np.abs(mu)))",
        "a wrong sign of epsilon in a conjugate",
    ),
    Fault(
        "inference/regbayes/constraints.py",
        "return np.clip(mu, 0.0, self.C)",
        "return np.maximum(mu, 0.0)",
        "the hinge's multipliers have no cap",
    ),
    Fault(
        "inference/regbayes/expectations.py",
        "log_partition = float(self.log_evidence - mu @ self.psi_mean + mu @ shift / 2)",
        "log_partition = float(self.log_evidence - mu @ self.psi_mean - mu @ shift / 2)",
        "a wrong sign in the Gaussian's log partition",
        ("inference/regbayes/test_exact.py",),
    ),
    Fault(
        "inference/regbayes/posterior.py",
        "phi = stack.split(-found.mu)",
        "phi = stack.split(found.mu)",
        "the tilted program has the other sign",
        ("inference/regbayes/test_exact.py",),
    ),
    Fault(
        "inference/sampled/tune_margin.py",
        "way = jnp.sign(state.num_active - aim.num_clusters)",
        "way = jnp.sign(aim.num_clusters - state.num_active)",
        "too many clusters weaken the margin",
    ),
    Fault(
        "inference/host/token_sweeps.py",
        "w[old] = a[old] + real(n[old])",
        "w[old] = a[old] + real(n[old] + 1)",
        "a token counts itself in compiled code",
        conforms("medlda", "collapsed"),
    ),
    Fault(
        "inference/host/token_sweeps.py",
        "m += u * (a + i) < a",
        "m += u * (a + i + 1) < a",
        "tables as if a customer sat already",
        (f"{TOPICS}::test_tables_are_drawn_the_same",),
    ),
    Fault(
        "inference/host/token_sweeps.py",
        "mass += 1.0",
        "mass += 0.0",
        "imputed topics are weighed by the prior's mass alone",
        (f"{TOPICS}::test_topics_are_imputed_and_weighed",),
    ),
]

DIAGNOSTICS = [
    Fault(
        "diagnostics/summary.py",
        "result[sound] = diagnostic(values[sound], chain_axis=1, draw_axis=2)",
        "result[sound] = diagnostic(values[sound], chain_axis=2, draw_axis=1)",
        "effective sample sizes along the wrong axis",
        ("diagnostics/test_diagnostics.py::test_summary_equals_arviz",),
    ),
    Fault(
        "diagnostics/arviz.py",
        "jnp.mean(-log_factor / (2 * margin[",
        "jnp.mean(-log_factor / (1 * margin[",
        "c for 2c in the training loss",
        ("diagnostics/test_mixtures.py::test_training_loss_is_the_factor_s",),
    ),
    Fault(
        "diagnostics/arviz.py",
        'stats["lp"] = -stats.pop("potential_energy")',
        'stats["lp"] = stats.pop("potential_energy")',
        "the log joint of NUTS with the potential's sign",
        ("diagnostics/test_diagnostics.py",),
    ),
    Fault(
        "diagnostics/comparison.py",
        "error = float(np.hypot(errors[0], errors[1]))",
        "error = float(max(errors))",
        "a z-score with the larger of two errors",
        ("diagnostics/test_scores.py::test_z_scores_are_standard_normal_where_kernels_agree",),
    ),
    Fault(
        "diagnostics/conformance.py",
        "return Row(move.name, move.sites, float(np.max(errors)), len(errors), move.covered_by)",
        "return Row(move.name, move.sites, float(np.min(errors)), len(errors), move.covered_by)",
        "conformance reports the smallest error",
        (f"{KERNEL}::test_a_wrong_move_is_caught",),
    ),
    Fault(
        "diagnostics/invariants.py",
        'found["largest_share"] = np.max(shares, axis=-1)',
        'found["largest_share"] = shares[..., 0]',
        "the share of slot 0 for that of the largest cluster",
        ("diagnostics/test_mixtures.py::test_invariants_are_those_of_the_partition",),
    ),
    Fault(
        "diagnostics/partitions.py",
        "inside = int(np.searchsorted(np.cumsum(share[order]), probability - 1e-9))",
        "inside = int(np.searchsorted(np.cumsum(share), probability - 1e-9))",
        "the credible radius takes draws in any order",
    ),
    Fault(
        "diagnostics/relabelling.py",
        "old_numbers = np.argsort(new_numbers, axis=1).reshape(*z.shape[:2], num_slots)",
        "old_numbers = new_numbers.reshape(*z.shape[:2], num_slots)",
        "sites are renumbered by the inverse permutation",
        ("diagnostics/test_mixtures.py",),
    ),
    Fault(
        "diagnostics/predictive.py",
        "X = np.concatenate([X, np.ones((len(X), 1))], axis=1)",
        "X = np.concatenate([X, np.zeros((len(X), 1))], axis=1)",
        "a prediction forgets the intercept",
        ("diagnostics/test_scores.py::test_the_last_of_a_weight_more_than_inputs_is_the_intercept",),
    ),
    Fault(
        "diagnostics/predictive.py",
        "np.sqrt((num - 1) / num * np.sum((without - without.mean()) ** 2))",
        "np.sqrt(1 / num * np.sum((without - without.mean()) ** 2))",
        "a bootstrap's factor in the jackknife",
        ("diagnostics/test_scores.py::test_errors_are_those_of_repeated_runs",),
    ),
    Fault(
        "diagnostics/cross_validation.py",
        'logs.reshape(posterior.sizes["chain"], posterior.sizes["draw"], -1)',
        'logs.reshape(posterior.sizes["draw"], posterior.sizes["chain"], -1).swapaxes(0, 1)',
        "draws of one chain are given to the others",
        ("diagnostics/test_scores.py::test_log_likelihoods_stay_with_their_draws",),
    ),
    Fault(
        "diagnostics/plots/decision.py",
        "np.stack([a.ravel(), b.ravel()], axis=1)",
        "np.stack([b.ravel(), a.ravel()], axis=1)",
        "the grid of a picture with its axes swapped",
        ("diagnostics/test_diagnostics.py",),
    ),
    Fault(
        "diagnostics/plots/partitions.py",
        "image = ax.imshow(similarity[np.ix_(order, order)], cmap",
        "image = ax.imshow(similarity[order], cmap",
        "rows of a map are ordered, columns are not",
        ("diagnostics/test_plots.py::test_coclustering_is_ordered_by_cluster",),
    ),
    Fault(
        "diagnostics/plots/features.py",
        "np.unravel_index(np.argmax(lp), lp.shape)",
        "np.unravel_index(np.argmin(lp), lp.shape)",
        "features of the least log joint are shown",
        ("diagnostics/test_plots.py::test_features_of_draws_are_those_of_the_largest_log_joint",),
    ),
]

DATASETS = [
    Fault(
        "datasets/shapes.py",
        "rng = np.random.default_rng(seed)",
        "rng = np.random.default_rng()",
        "a generator without its seed",
        ("datasets/test_clustering.py::test_the_seed_decides",),
    ),
    Fault(
        "datasets/synthetic.py",
        "return expit(np.sum(self.eta[z] * (X - self.mu[z]), axis=1))",
        "return expit(np.sum(self.eta[z] * X, axis=1))",
        "classifiers of clusters do not pass through their means",
        ("datasets/test_datasets.py::test_labels_follow_the_sigmoid",),
    ),
    Fault(
        "datasets/synthetic.py",
        "seat = u * (i + (concentration if num_clusters < max_clusters else 0.0))",
        "seat = u * (i + 1 + (concentration if num_clusters < max_clusters else 0.0))",
        "guests of the restaurant off by one",
        ("datasets/test_datasets.py::test_the_second_guest_sits_with_the_first_as_often_as_said",),
    ),
    Fault(
        "datasets/isvm.py",
        "- x_1 * np.cos(b * x_2 + 0.7) - c * x_3 + 2)",
        "- x_1 * np.cos(b * x_2 + 0.7) + c * x_3 + 2)",
        "a wrong sign in the probability of a label",
        ("datasets/test_isvm_settings.py",),
    ),
    Fault(
        "datasets/corpora.py",
        "theta = np.stack([rng.dirichlet(alpha * proportions[k] + 1e-9) for k in y])",
        "theta = np.stack([rng.dirichlet(alpha * proportions[0] + 1e-9) for k in y])",
        "all documents have the topics of the first class",
        ("datasets/test_datasets.py::test_labelled_corpora", f"{TOPICS}::test_classes_of_new_documents"),
    ),
    Fault(
        "datasets/latent.py",
        "f = f / np.maximum(f.std(0), 1e-12) + noise * rng.normal(size=f.shape)",
        "f = f / np.maximum(f.std(1)[:, None], 1e-12) + noise * rng.normal(size=f.shape)",
        "scores are scaled by row, not by task",
        ("datasets/test_latent.py",),
    ),
]

FRONT = [
    Fault(
        "regbayes/zoo/svms.py",
        "limit=inference.EMSVR,",
        "limit=inference.EMSVC,",
        "a card with another's limit",
        (f"{ZOO}::test_a_model_has_its_own_limit_and_learner",),
    ),
    Fault(
        "regbayes/zoo/mixtures.py",
        "learner=inference.InfiniteSVM,",
        "learner=inference.ILSVM,",
        "a card with another's learner",
        (f"{ZOO}::test_a_model_has_its_own_limit_and_learner",),
    ),
    Fault(
        "regbayes/zoo/topics.py",
        'example=example(_corpus(task="regression"), num_topics=4),',
        "example=example(_corpus(), num_topics=4),",
        "a card with another's example",
        (f"{ZOO}::test_settings_suit_the_scale_of_data",),
    ),
    Fault(
        "regbayes/zoo/features.py",
        'return {**_of_features(X), "prior_scale": 1 / spread(X)}',
        'return {**_of_features(X), "prior_scale": spread(X)}',
        "weights' prior grows with the data's scale",
        (f"{ZOO}::test_settings_suit_the_scale_of_data",),
    ),
    Fault(
        "regbayes/fitting.py",
        '"data": digest_of((data, init_params)),',
        '"data": digest_of(init_params),',
        "a run is gone on with on other data",
        ("regbayes/test_cli_fit.py", "regbayes/test_fifteenth_model.py"),
    ),
    Fault(
        "regbayes/fitting.py",
        "return kernel or list(entry.kernels)[-1]",
        "return kernel or list(entry.kernels)[0]",
        "the first kernel for the recommended one",
        ("regbayes/test_cli_fit.py::test_the_recommended_kernel_draws_unless_another_is_named",),
    ),
    Fault(
        "regbayes/commands/data.py",
        "features = [title for title in header if title not in labels]",
        "features = list(header)",
        "the label is among the inputs",
        ("regbayes/test_cli_fit.py::test_tables_by_kind_of_label",),
    ),
    Fault(
        "regbayes/commands/data.py",
        "places = {cell: k for k, cell in enumerate(names)}",
        "places = {cell: k for k, cell in enumerate(names, start=1)}",
        "labels off by one",
        ("regbayes/test_cli_fit.py::test_tables_by_kind_of_label",),
    ),
    Fault(
        "regbayes/commands/fit.py",
        'lengths: dict[str, Any] = {"num_warmup": num_warmup,',
        'lengths: dict[str, Any] = {"num_warmup": num_samples,',
        "as many sweeps of warm-up as draws",
        ("regbayes/test_cli_fit.py",),
    ),
    Fault(
        "regbayes/reproduce/experiment.py",
        "found = fitted.fit(train.X, train.y).predict(test.X)",
        "found = fitted.fit(test.X, test.y).predict(test.X)",
        "held-out scores of rows that were learned from",
        ("regbayes/test_reproduce.py::test_hyper_parameters_are_chosen_in_the_training_part",),
    ),
    Fault(
        "regbayes/reproduce/experiment.py",
        "error = float(np.std(values, ddof=1)) / len(values) ** 0.5",
        "error = float(np.std(values, ddof=1))",
        "a standard deviation for the standard error of differences",
        ("regbayes/test_reproduce.py::test_differences_are_taken_seed_by_seed",),
    ),
]

FAULTS = [
    *MODELS,
    *OF_LAWS,
    *ENGINE,
    *MOVES,
    *KERNELS,
    *LIMITS,
    *MEAN_FIELD,
    *OTHER_INFERENCE,
    *DIAGNOSTICS,
    *DATASETS,
    *FRONT,
]
