"""Combined experts against [OPT]'s formulas, written out densely, and the laws they keep."""

import dataclasses
import itertools
import logging
from functools import partial
from typing import NamedTuple
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daskgp import kernels, testing
from daskgp.data import Rows, partition
from daskgp.data.blocks.draws import Central
from daskgp.data.partition import Span
from daskgp.errors import InputError, NumericalError
from daskgp.fit.rounds import EXPERT_TASKS, Rounds
from daskgp.models import REGISTRY, optimal_weights
from daskgp.models.experts.exact import ExactExperts
from daskgp.models.experts.sparse import SparseExperts
from daskgp.models.scaling import identity
from daskgp.models.values import TILE_ROWS, Block, Shape, Theta
from daskgp.runtime.executor import Executor
from tests import oracle
from tests.measured import peak

NOISE, JITTER, SEED = 0.08, 1e-8, 5
KERNEL = kernels.Matern32(lengthscale=(0.7, 1.3), variance=1.4) + kernels.Linear(variance=0.3)
Case = tuple[tuple[int, ...], int, kernels.Kernel]
CASES: dict[str, Case] = {
    "1 expert": ((17,), 2, KERNEL),
    "2 experts": ((9, 14), 1, kernels.RBF(lengthscale=(0.6, 0.9), variance=1.7)),
    "5 experts": ((6, 1, 13, 8, 3), 2, kernels.Matern12(0.8) * kernels.Matern52(1.1)),
    "5 smooth experts": ((10, 4, 2, 7, 5), 1, kernels.RationalQuadratic(0.9, alpha=0.7)),
}
COMMITTEES = ("poe", "gpoe", "bcm", "rbcm", "grbcm")
# the formulas are those of the risk of the data alone
EXPERTS = {"exact": ExactExperts, "sparse": partial(SparseExperts, shrinkage=0.0)}

every_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES)
both_kinds = pytest.mark.parametrize("kind", EXPERTS)
every_committee = pytest.mark.parametrize("rule", COMMITTEES)


def problem(sizes=(9, 14, 5), p=2, kernel=KERNEL, seed=0, noise=NOISE, kind="exact"):
    """Rows of each expert, places and hyper-parameters; inducing inputs apart from one another."""
    rng = np.random.default_rng(seed)
    X, T = (rng.uniform(-1.5, 1.5, (n, 2)) for n in (sum(sizes), 7))
    y = np.sin(2 * X @ np.ones((2, p)) + np.arange(p)) + 0.3 * rng.standard_normal((len(X), p))
    axis = np.linspace(-1.2, 1.2, 3)
    Z = np.stack(np.meshgrid(axis, axis[:2] + 0.2), axis=-1).reshape(-1, 2)
    edges = np.cumsum(sizes)[:-1]
    blocks = [Block(*rows) for rows in zip(np.split(X, edges), np.split(y, edges), strict=True)]
    return blocks, T, Theta(kernel, noise, Z if kind == "sparse" else None)


def predicted(model, theta, blocks, T, want="variance"):
    return testing.combine_experts(model, theta, [[block] for block in blocks], T, want)[1]


def rows_of(blocks):
    return np.concatenate([b.X for b in blocks]), np.concatenate([b.y for b in blocks])


# -- the papers' formulas --------------------------------------------------------------------


class Local(NamedTuple):
    """An expert: its rows, mean (t, p) and variance (t,) at places, and its linear predictor."""

    rows: Block
    mean: np.ndarray
    variance: np.ndarray
    predictor: np.ndarray  # (n_i, t): mean = predictor' y


class Papers:
    """[OPT] without whitening; K_uu has the package's jitter, as part of the model."""

    def __init__(self, theta, T):
        self.k, self.s, self.T, self.Z = theta.kernel, theta.noise_variance, T, theta.inputs
        if self.Z is not None:
            K = self.k(self.Z)
            self.Kuu = K + JITTER * np.mean(np.diag(K)) * np.eye(len(K))

    def M(self, X):
        """M_uu for the rows X, below eq. 10."""
        Kuf = self.k(self.Z, X)
        return self.Kuu + Kuf @ Kuf.T / self.s

    def expert(self, rows):
        """Eq. 4, or eq. 12 where there are inducing inputs."""
        X, y, T, k = rows.X, rows.y, self.T, self.k
        if self.Z is None:
            C = k(X) + self.s * np.eye(len(X))
            U = np.linalg.inv(C) @ k(X, T)
            return Local(rows, U.T @ y, np.diag(k(T) - k(T, X) @ U), U)
        inverse = np.linalg.inv(self.M(X))
        U = k(X, self.Z) @ inverse @ k(self.Z, T) / self.s
        gap = k(T, self.Z) @ (np.linalg.inv(self.Kuu) - inverse) @ k(self.Z, T)
        return Local(rows, U.T @ y, np.diag(k(T) - gap), U)

    def covariance(self, A, B):
        """Of f at training rows, and of f at rows with f at places: K, or Q of the sparse model."""
        if self.Z is None:
            return self.k(A, B)
        return self.k(A, self.Z) @ np.linalg.inv(self.Kuu) @ self.k(self.Z, B)

    def linear(self, V, X):
        """E (f - V'y)(f - V'y)' for a linear predictor V (n, t) of all observations."""
        cross, joint = self.covariance(X, self.T), self.covariance(X, X) + self.s * np.eye(len(X))
        return self.k(self.T) - V.T @ cross - cross.T @ V + V.T @ joint @ V

    # optimal weights

    def functions(self, blocks):
        """Centres of all experts' means, and coefficients (M, c, p) of f_i = k(., centres) a_i."""
        if self.Z is not None:
            a = [np.linalg.inv(self.M(b.X)) @ self.k(self.Z, b.X) @ b.y / self.s for b in blocks]
            return self.Z, np.array(a)
        X, y = rows_of(blocks)
        a, start = np.zeros((len(blocks), *y.shape)), 0
        for own, b in zip(a, blocks, strict=True):
            n = len(b.X)
            own[start : start + n] = np.linalg.inv(self.k(b.X) + self.s * np.eye(n)) @ b.y
            start += n
        return X, a

    def norms(self, centres, a):
        """<f_i, f_j> in the RKHS, eq. 36."""
        K = self.k(centres) if self.Z is None else self.Kuu
        return np.einsum("icp,cd,jdp->ij", a, K, a)

    def projection(self, blocks):
        """A of eq. 42 over all rows, and b_i = sum over rows of f_i y."""
        (X, y), (centres, a) = rows_of(blocks), self.functions(blocks)
        F = np.einsum("nc,icp->inp", self.k(X, centres), a)
        A = np.einsum("inp,jnp->ij", F, F) + self.s * self.norms(centres, a)
        return A, np.einsum("inp,np->i", F, y)

    def algorithm_3(self, blocks, Xc, scale=1.0):
        """A as in lines 3-15: alpha_i' M^(c) alpha_j / s with alpha_i = M_i^-1 K_uf_i y_i."""
        Kuc = self.k(self.Z, Xc)
        Mc = self.Kuu + scale * Kuc @ Kuc.T / self.s
        alphas = [np.linalg.solve(self.M(b.X), self.k(self.Z, b.X) @ b.y) for b in blocks]
        return np.array([[(a * (Mc @ b)).sum() / self.s for b in alphas] for a in alphas])

    def algorithm_5(self, blocks, Xc):
        """A as in lines 3-14, no noise variance; the last k(X_c, X_i) of line 7 means X_j."""
        A, k = np.empty((len(blocks),) * 2), self.k
        alphas = [np.linalg.solve(k(b.X) + self.s * np.eye(len(b.X)), b.y) for b in blocks]
        for i, j in np.ndindex(A.shape):
            Xi, Xj = blocks[i].X, blocks[j].X
            A[i, j] = (alphas[i] * ((k(Xi, Xj) + k(Xi, Xc) @ k(Xc, Xj)) @ alphas[j])).sum()
        return A

    def combined(self, blocks, beta):
        """Eqs. 43a and 45a with the covariance of the linear predictor's error."""
        experts = [self.expert(rows) for rows in blocks]
        mean = sum(b * e.mean for b, e in zip(beta, experts, strict=True))
        V = np.concatenate([b * e.predictor for b, e in zip(beta, experts, strict=True)])
        return mean, self.linear(V, rows_of(blocks)[0])

    def printed_variance(self, blocks, beta):
        """Eqs. 43b and 45b."""
        total = np.zeros(len(self.T))
        for b, X in zip(beta, (block.X for block in blocks), strict=True):
            if self.Z is None:
                K, middle = self.k(self.T, X), self.k(X) + self.s * np.eye(len(X))
            else:
                K, middle = self.k(self.T, self.Z), self.M(X)
            total += b**2 * np.diag(K @ np.linalg.inv(middle) @ K.T)
        return total

    # committees and nested kriging

    def committee(self, rule, blocks, noisy):
        """Eqs. 14 and 15, place by place; experts and prior with the noise variance if noisy."""
        extra = self.s if noisy else 0.0
        prior = np.diag(self.k(self.T)) + extra
        if rule == "grbcm":
            return self.grbcm(blocks, extra)
        experts = [self.expert(rows) for rows in blocks]
        sizes = [e.variance + extra for e in experts]
        if rule in ("poe", "bcm"):
            beta = [np.ones_like(prior)] * len(experts)
        elif rule == "gpoe":
            beta = [np.full_like(prior, 1 / len(experts))] * len(experts)
        else:
            beta = [0.5 * (np.log(prior) - np.log(size)) for size in sizes]
        precision = sum(b / size for b, size in zip(beta, sizes, strict=True))
        if rule in ("bcm", "rbcm"):  # eq. 14b's last term is for the BCM family
            precision = precision + (1 - sum(beta)) / prior
        parts = zip(beta, sizes, experts, strict=True)
        weighted = sum((b / size)[:, None] * e.mean for b, size, e in parts)
        return weighted / precision[:, None], 1 / precision

    def grbcm(self, blocks, extra):
        first = self.expert(blocks[0])
        if len(blocks) == 1:
            return first.mean, first.variance + extra
        size = first.variance + extra
        precision, weighted, total = 0.0, 0.0, 0.0
        for i, rows in enumerate(blocks[1:], start=2):
            both = self.expert(Block(*rows_of([blocks[0], rows])))
            own = both.variance + extra
            beta = np.ones_like(own) if i == 2 else 0.5 * (np.log(size) - np.log(own))
            precision, total = precision + beta / own, total + beta
            weighted = weighted + (beta / own)[:, None] * both.mean
        precision = precision - (total - 1) / size
        weighted = weighted - ((total - 1) / size)[:, None] * first.mean
        return weighted / precision[:, None], 1 / precision

    def npae(self, blocks):
        """Eq. 16 with the covariances of eq. 17 by brute force from the joint model of y and f."""
        experts = [self.expert(rows) for rows in blocks]
        X, _ = rows_of(blocks)
        joint = self.covariance(X, X) + self.s * np.eye(len(X))
        edges = np.cumsum([len(rows.X) for rows in blocks])[:-1]
        mean, variance = np.empty((len(self.T), experts[0].mean.shape[1])), np.empty(len(self.T))
        for t, prior in enumerate(np.diag(self.k(self.T))):
            P = np.zeros((len(X), len(blocks)))  # all predictors of one place
            for i, (part, e) in enumerate(zip(np.split(P, edges), experts, strict=True)):
                part[:, i] = e.predictor[:, t]
            cross, K = P.T @ self.covariance(X, self.T[t : t + 1]), P.T @ joint @ P
            weights = np.linalg.solve(K, cross)
            mean[t] = weights[:, 0] @ np.array([e.mean[t] for e in experts])
            variance[t] = prior - weights[:, 0] @ cross[:, 0]
        return mean, variance

    def risk(self, blocks, beta):
        """R of eq. 37 of the combination."""
        (X, y), (centres, a) = rows_of(blocks), self.functions(blocks)
        c = np.einsum("i,icp->cp", beta, a)
        norm = self.norms(centres, c[None])[0, 0]
        return ((self.k(X, centres) @ c - y) ** 2).sum() + self.s * norm


def assert_alike(found, mean, variance):
    np.testing.assert_allclose(found.mean, mean, rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(found.variance, variance, rtol=1e-8, atol=1e-9)


# -- the formulas hold -----------------------------------------------------------------------


@every_case
@both_kinds
@every_committee
@pytest.mark.parametrize("noisy", [False, True], ids=["of f", "of y"])
def test_committees_are_those_of_equations_14_and_15(kind, rule, case, noisy):
    blocks, T, theta = problem(*case, kind=kind)
    model = EXPERTS[kind](len(blocks), rule, noise_in_experts=noisy)
    found = predicted(model, theta, blocks, T)
    assert found.noisy == noisy
    assert_alike(found, *Papers(theta, T).committee(rule, blocks, noisy))


@every_case
@both_kinds
def test_nested_kriging_is_that_of_equations_16_and_17(kind, case):
    blocks, T, theta = problem(*case, kind=kind)
    found = predicted(EXPERTS[kind](len(blocks), "npae"), theta, blocks, T)
    assert not found.noisy
    assert_alike(found, *Papers(theta, T).npae(blocks))


@every_case
@both_kinds
def test_projection_weights_solve_the_normal_equations(kind, case):
    blocks, T, theta = problem(*case, kind=kind)
    papers = Papers(theta, T)
    beta = np.linalg.solve(*papers.projection(blocks))
    model = EXPERTS[kind](len(blocks), ridge=0.0)
    mean, covariance = papers.combined(blocks, beta)
    assert_alike(predicted(model, theta, blocks, T), mean, np.diag(covariance))
    printed = dataclasses.replace(model, variance="paper")
    found = predicted(printed, theta, blocks, T)
    assert_alike(found, mean, papers.printed_variance(blocks, beta))


@every_case
@pytest.mark.parametrize("shrinkage", [0.01, 0.5, 1.0])
def test_shrunk_weights_minimise_the_risk_and_its_expectation(case, shrinkage):
    blocks, T, theta = problem(*case, kind="sparse")
    (X, y), M = rows_of(blocks), len(blocks)
    rows = Papers(theta, X)  # predictions at all training rows
    joint, P = rows.covariance(X, X) + theta.noise_variance * np.eye(len(X)), []
    for start, block in zip(np.cumsum([0, *(len(b.X) for b in blocks)]), blocks, strict=False):
        P.append(np.zeros((len(X), len(X))))
        P[-1][start : start + len(block.X)] = rows.expert(block).predictor
    C = np.array([[np.trace(P[i].T @ joint @ P[j]) for j in range(M)] for i in range(M)])
    c = np.array([np.trace(p.T @ rows.covariance(X, X)) for p in P])
    A, b = rows.projection(blocks)
    inner = (1 - shrinkage) * A + shrinkage * y.shape[1] * C
    beta = np.linalg.solve(inner, (1 - shrinkage) * b + shrinkage * y.shape[1] * c)
    model = SparseExperts(M, shrinkage=shrinkage, ridge=0.0)
    mean, covariance = Papers(theta, T).combined(blocks, beta)
    assert_alike(predicted(model, theta, blocks, T), mean, np.diag(covariance))


@both_kinds
def test_the_ridge_is_relative_to_the_mean_diagonal(kind):
    blocks, T, theta = problem(kind=kind)
    papers = Papers(theta, T)
    A, b = papers.projection(blocks)
    beta = np.linalg.solve(A + 0.3 * np.mean(np.diag(A)) * np.eye(len(A)), b)
    found = predicted(EXPERTS[kind](len(blocks), ridge=0.3), theta, blocks, T)
    np.testing.assert_allclose(found.mean, papers.combined(blocks, beta)[0], rtol=1e-8, atol=1e-9)


def rounds(blocks, read_rows=None):
    """The rounds over these experts, in memory."""
    X, y = rows_of(blocks)
    edges = np.concatenate([[0], np.cumsum([len(rows.X) for rows in blocks])]).tolist()
    spans = tuple(itertools.starmap(Span, itertools.pairwise(edges)))
    rows = Rows(X, y, None, ("a", "b"), tuple("uv"[: y.shape[1]]))
    return Rounds(
        rows,
        partition.alone(spans),
        identity(2, y.shape[1]),
        Executor(None, False),
        read_rows=read_rows,
        least_tasks=EXPERT_TASKS,
        seed=SEED,
    )


def through_rounds(model, theta, blocks, T, want="variance"):
    """As a fit does it: the central rows are those that are drawn there."""
    state, _ = model.solve(theta, rounds(blocks, 4 if model.divisible else None))
    near = testing.HeldExperts(model, theta, state, blocks) if model.keeps_rows else None
    return state.beta, model.predict(theta, state, T, near, want)


def central_rows(blocks, share):
    """Which rows of each expert are drawn."""
    draw = Central(share, SEED)
    return [draw.among(span, span) for span in rounds(blocks).spans]


@every_case
@both_kinds
def test_the_papers_weights_are_those_of_algorithms_3_and_5(kind, case):
    blocks, T, theta = problem(*case, kind=kind)
    papers, drawn = Papers(theta, T), central_rows(blocks, None)
    assert [rows.sum() for rows in drawn] == [1] * len(blocks)
    Xc = np.concatenate([block.X[rows] for block, rows in zip(blocks, drawn, strict=True)])
    A = papers.algorithm_3(blocks, Xc) if kind == "sparse" else papers.algorithm_5(blocks, Xc)
    wanted = np.linalg.solve(A, np.diag(A))
    for variance in ("paper", "linear"):
        model = EXPERTS[kind](len(blocks), weights="paper", variance=variance, ridge=0.0)
        beta, found = through_rounds(model, theta, blocks, T)
        np.testing.assert_allclose(beta, wanted, rtol=1e-8)
        mean, covariance = papers.combined(blocks, wanted)
        printed = papers.printed_variance(blocks, wanted)
        assert_alike(found, mean, printed if variance == "paper" else np.diag(covariance))


def test_a_share_of_the_rows_is_scaled_up_in_the_papers_weights_of_sparse_experts():
    blocks, T, theta = problem((30, 50, 20), kind="sparse")
    drawn = np.concatenate(central_rows(blocks, 0.3))
    assert 15 < drawn.sum() < 45
    Xc = rows_of(blocks)[0][drawn]
    A = Papers(theta, T).algorithm_3(blocks, Xc, 100 / len(Xc))
    model = SparseExperts(3, weights="paper", central=0.3, ridge=0.0)
    beta, _ = through_rounds(model, theta, blocks, T)
    np.testing.assert_allclose(beta, np.linalg.solve(A, np.diag(A)), rtol=1e-8)


@pytest.mark.parametrize("weights", ["projection", "paper"])
def test_a_share_of_the_rows_is_scaled_up_in_all_sums_of_exact_experts(weights):
    """A_ij and b_i are sums over rows x: f_i f_j + s (alpha_i f_j + alpha_j f_i) / 2, and f_i y."""
    blocks, T, theta = problem((30, 50, 20))
    papers, drawn = Papers(theta, T), np.concatenate(central_rows(blocks, 0.3))
    (X, y), (centres, a) = rows_of(blocks), papers.functions(blocks)
    F = np.einsum("nc,icp->inp", theta.kernel(X, centres), a)
    full = [np.einsum("inp,jnp->ij", F, G) for G in (F, a)]
    assert full[0] + NOISE * full[1] == pytest.approx(papers.projection(blocks)[0], rel=1e-9)
    F, a, y, scale = F[:, drawn], a[:, drawn], y[drawn], 100 / drawn.sum()
    half = np.einsum("inp,jnp->ij", F, a)
    A = scale * (np.einsum("inp,jnp->ij", F, F) + 0.5 * NOISE * (half + half.T))
    b = np.diag(A) if weights == "paper" else scale * np.einsum("inp,np->i", F, y)
    model = ExactExperts(3, weights=weights, central=0.3, ridge=0.0)
    beta, _ = through_rounds(model, theta, blocks, T)
    np.testing.assert_allclose(beta, np.linalg.solve(A, b), rtol=1e-8)


@both_kinds
def test_the_rounds_of_a_fit_give_what_one_block_gives(kind):
    blocks, T, theta = problem((13, 9, 6, 2), kind=kind)
    for rule in (*COMMITTEES, "npae", "optimal"):
        model = EXPERTS[kind](len(blocks), rule)
        wanted = predicted(model, theta, blocks, T)
        _, found = through_rounds(model, theta, blocks, T)
        assert_alike(found, wanted.mean, wanted.variance)


@every_case
@both_kinds
def test_an_experts_objective_is_its_evidence_or_bound(kind, case):
    blocks, _, theta = problem(*case, kind=kind)
    model = EXPERTS[kind](1, "poe")
    for X, y in ((block.X, block.y) for block in blocks):
        if kind == "exact":
            wanted = oracle.evidence(theta.kernel(X), y, NOISE)
        else:
            wanted = oracle.titsias_bound(theta.kernel, X, y, theta.inputs, NOISE)
        cuts = [Block(X[:3], y[:3]), Block(X[3:], y[3:])]
        for pieces in ([Block(X, y)], cuts):
            rows = testing.rows_of(pieces)
            assert model.expert_objective(theta, rows).value == pytest.approx(wanted, rel=1e-8)
            assert model.solve(theta, rows)[1] == pytest.approx(wanted, rel=1e-8)


# -- limits ----------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", ["poe", "gpoe", "bcm", "grbcm", "npae", "optimal"])
def test_one_expert_is_the_exact_gp_or_the_sparse_one(rule):
    for kind in EXPERTS:
        blocks, T, theta = problem((25,), kind=kind)
        X, y, k = blocks[0].X, blocks[0].y, theta.kernel
        if kind == "exact":
            mean, covariance = oracle.posterior(k(X), k(T, X), k(T), y, NOISE)
        else:
            mean, covariance = oracle.sparse_posterior(k, X, y, theta.inputs, NOISE, T)
        model = EXPERTS[kind](1, rule, ridge=0.0)
        assert_alike(predicted(model, theta, blocks, T), mean, np.diag(covariance))
        if rule == "optimal":
            joint = predicted(model, theta, blocks, T, "covariance").covariance
            np.testing.assert_allclose(joint, covariance, rtol=1e-8, atol=1e-9)


@both_kinds
def test_nested_kriging_with_an_expert_that_has_all_rows_is_the_posterior_given_all(kind):
    """The other experts say nothing that it does not know."""
    blocks, T, theta = problem((25, 0, 0), kind=kind)
    alone = predicted(EXPERTS[kind](1, "npae"), theta, blocks[:1], T)
    found = predicted(EXPERTS[kind](3, "npae"), theta, blocks, T)
    assert_alike(found, alone.mean, alone.variance)


SETTINGS = [{"aggregation": rule, "noise_in_experts": n} for rule in COMMITTEES for n in (0, 1)]
SETTINGS += [{"aggregation": "npae"}]
SETTINGS += [
    {"weights": w, "variance": v} for w in ("projection", "paper") for v in ("linear", "paper")
]


@pytest.mark.parametrize("name", [name for name in REGISTRY if "experts" in name])
@pytest.mark.parametrize("chosen", SETTINGS, ids=lambda chosen: "-".join(map(str, chosen.values())))
def test_every_ensemble_keeps_the_laws(name, chosen):
    blocks, _, theta = problem((40,), kind="sparse")
    fixed = 2 if chosen.get("aggregation") == "grbcm" else 0
    if name == "exact-experts":
        theta = dataclasses.replace(theta, inputs=None)
    testing.check_ensemble(REGISTRY[name](4, **chosen), theta, blocks[0].X, blocks[0].y, fixed)


def test_the_first_two_experts_of_grbcm_have_parts_of_their_own():
    blocks, _, theta = problem((40,))
    with pytest.raises(AssertionError, match="order of experts"):
        testing.check_ensemble(ExactExperts(4, "grbcm"), theta, blocks[0].X, blocks[0].y)


class Wrong(ExactExperts):
    """Exact experts with an error of one part in a thousand somewhere."""

    def summarise(self, theta, rows):
        found = super().summarise(theta, rows)
        return found._replace(value=found.value * (1 + 1e-3 * (self.where == "evidence")))

    def predict(self, theta, state, X, near=None, want="mean"):
        found = super().predict(theta, state, X, near, want)
        if self.where == "mean":
            return found._replace(mean=1.001 * found.mean)
        if self.where == "variance" and want == "variance":
            return found._replace(variance=1.001 * found.variance)
        return found


@pytest.mark.parametrize("where", ["evidence", "mean", "variance", "nowhere"])
def test_the_check_of_ensembles_notices(where):
    blocks, _, theta = problem((40,))
    with mock.patch.object(Wrong, "where", where, create=True):
        if where == "nowhere":
            testing.check_ensemble(Wrong(3, "poe"), theta, blocks[0].X, blocks[0].y)
        else:
            with pytest.raises(AssertionError, match="exact limit"):
                testing.check_ensemble(Wrong(3, "poe"), theta, blocks[0].X, blocks[0].y)


# -- inequalities ----------------------------------------------------------------------------

settings_of_problems = {
    "sizes": st.lists(st.integers(1, 9), min_size=1, max_size=5),
    "seed": st.integers(0, 2**16),
    "noise": st.floats(1e-4, 2.0),
    "duplicated": st.booleans(),
}


def drawn(sizes, seed, noise, duplicated, kind):
    """A problem whose experts may share half of their inputs; places at and between rows."""
    kernel = kernels.Matern52(lengthscale=0.6, variance=1.7)
    blocks, T, theta = problem(tuple(sizes), 2, kernel, seed, noise, kind)
    if duplicated:
        for rows in blocks:
            rows.X[: len(rows.X) // 2 + 1] = blocks[0].X[0]
    return blocks, np.concatenate([T, blocks[0].X]), theta


def best_variance(theta, blocks, T):
    """Of the exact GP on all rows, or of the sparse one with the same Z."""
    X, y = rows_of(blocks)
    k, s = theta.kernel, theta.noise_variance
    if theta.inputs is None:
        return np.diag(oracle.posterior(k(X), k(T, X), k(T), y, s)[1])
    return np.diag(oracle.sparse_posterior(k, X, y, theta.inputs, s, T)[1])


@both_kinds
@given(**settings_of_problems, weights=st.integers(0, 2**16))
def test_the_linear_variance_is_never_below_that_of_the_best_predictor(kind, weights, **given_):
    blocks, T, theta = drawn(**given_, kind=kind)
    beta = 2 * np.random.default_rng(weights).standard_normal(len(blocks))
    with mock.patch.object(optimal_weights, "optimal_weights", return_value=beta):
        found = predicted(EXPERTS[kind](len(blocks)), theta, blocks, T)
    wanted = np.diag(Papers(theta, T).combined(blocks, beta)[1])
    np.testing.assert_allclose(found.variance, wanted, rtol=1e-7, atol=1e-7)
    assert np.all(found.variance >= best_variance(theta, blocks, T) - 1e-7)


@both_kinds
@given(**settings_of_problems)
def test_nested_kriging_lies_between_the_best_predictor_and_optimal_weights(kind, **given_):
    """It is the best linear predictor given the experts, whose weights may differ by place."""
    blocks, T, theta = drawn(**given_, kind=kind)
    nested, optimal = (
        predicted(EXPERTS[kind](len(blocks), rule), theta, blocks, T).variance
        for rule in ("npae", "optimal")
    )
    assert np.all(nested >= best_variance(theta, blocks, T) - 1e-7)
    assert np.all(nested <= optimal + 1e-7)


@both_kinds
@given(**settings_of_problems, direction=st.integers(0, 2**16))
def test_projection_weights_have_the_least_penalised_risk(kind, direction, **given_):
    blocks, T, theta = drawn(**given_, kind=kind)
    papers, count = Papers(theta, T), len(blocks)
    beta, _ = through_rounds(EXPERTS[kind](count, ridge=1e-12), theta, blocks, T)
    others, _ = through_rounds(EXPERTS[kind](count, weights="paper"), theta, blocks, T)
    step = np.random.default_rng(direction).standard_normal(count)
    risk = partial(papers.risk, blocks)
    most = risk(beta) - 1e-8 * risk(np.zeros(count))
    for candidate in (beta + 0.1 * step, beta - 1e-3 * step, others, np.full(count, 1 / count)):
        assert risk(candidate) >= most


# -- experts of every kind -------------------------------------------------------------------


@both_kinds
def test_identical_experts_share_their_weight_and_are_reported(kind, caplog):
    blocks, T, theta = problem((12,), kind=kind)
    for weights in ("projection", "paper"):
        caplog.clear()
        model = EXPERTS[kind](3, weights=weights, central=1.0)
        with caplog.at_level(logging.WARNING, "daskgp"):
            beta, found = through_rounds(model, theta, blocks * 3, T)
        assert "the inner products of 3 experts have rank 1" in caplog.text
        assert "predict alike and share their weight" in caplog.text
        np.testing.assert_allclose(beta, beta[0], rtol=1e-5)
        assert np.isfinite(found.variance).all()
        with pytest.raises(NumericalError, match="choose ridge=1e-6 or fewer experts"):
            through_rounds(dataclasses.replace(model, ridge=0.0), theta, blocks * 3, T)
        A, b = Papers(theta, T).projection(blocks * 3)
        total = b[0] / A[0, 0] if weights == "projection" else 1.0
        assert beta.sum() == pytest.approx(total, rel=1e-5)


@both_kinds
def test_experts_that_predict_nothing_have_no_weight(kind):
    blocks, T, theta = problem(kind=kind)
    silent = [Block(block.X, 0 * block.y) for block in blocks]
    beta, found = through_rounds(EXPERTS[kind](3, ridge=0.0), theta, silent, T)
    np.testing.assert_array_equal(beta, 0.0)
    np.testing.assert_array_equal(found.mean, 0.0)
    np.testing.assert_allclose(found.variance, np.diag(theta.kernel(T)), rtol=1e-9)


@both_kinds
@pytest.mark.parametrize("rule", [*COMMITTEES, "npae", "optimal"])
def test_an_expert_without_rows_predicts_the_prior(kind, rule):
    blocks, T, theta = problem((9, 0, 1, 7), kind=kind)
    papers = Papers(theta, T)
    empty = papers.expert(blocks[1])
    np.testing.assert_allclose(empty.variance, np.diag(theta.kernel(T)), rtol=1e-12)
    found = predicted(EXPERTS[kind](4, rule), theta, blocks, T)
    if rule in COMMITTEES:
        assert_alike(found, *papers.committee(rule, blocks, False))
        return
    others = [blocks[i] for i in (0, 2, 3)]
    wanted = predicted(EXPERTS[kind](3, rule), theta, others, T)
    tolerance = 1e-8 if rule == "npae" else 1e-4  # the ridge is relative to the mean diagonal
    np.testing.assert_allclose(found.mean, wanted.mean, atol=tolerance)
    np.testing.assert_allclose(found.variance, wanted.variance, atol=tolerance)


@both_kinds
@pytest.mark.parametrize("rule", [*COMMITTEES, "npae", "optimal"])
def test_places_far_from_all_rows_get_the_prior_back(kind, rule):
    """Some experts' covariances with the place underflow, and others are just above nothing."""
    blocks, _, theta = problem((9, 5, 7), kernel=kernels.RBF(0.3, variance=1.4), kind=kind)
    T = np.stack([np.linspace(5, 14, 400), np.zeros(400)], axis=1)
    found = predicted(EXPERTS[kind](3, rule), theta, blocks, T)
    np.testing.assert_allclose(found.mean, 0.0, atol=1e-12)
    prior = 1.4 * 3 ** {"poe": -1}.get(rule, 0)  # experts that know nothing still count in PoE
    np.testing.assert_allclose(found.variance, prior, rtol=1e-12)


@pytest.mark.parametrize("chosen", SETTINGS, ids=lambda chosen: "-".join(map(str, chosen.values())))
def test_float32_tiles_of_sparse_experts_agree_to_their_precision(chosen):
    blocks, T, theta = problem((90, 70, 50), kind="sparse")
    wanted = predicted(SparseExperts(3, **chosen), theta, blocks, T)
    narrow = [Block(block.X.astype(np.float32), block.y) for block in blocks]
    model = SparseExperts(3, **chosen, jitter=1e-6)
    found = predicted(model, theta, narrow, T.astype(np.float32))
    np.testing.assert_allclose(found.mean, wanted.mean, atol=2e-3)
    np.testing.assert_allclose(found.variance, wanted.variance, atol=2e-3)


# -- joint covariances -----------------------------------------------------------------------


@every_case
@both_kinds
@pytest.mark.parametrize("weights", ["projection", "paper"])
def test_joint_covariance_is_that_of_the_linear_predictors_error(kind, case, weights):
    blocks, T, theta = problem(*case, kind=kind)
    model = EXPERTS[kind](len(blocks), weights=weights)
    beta, found = through_rounds(model, theta, blocks, T, "covariance")
    mean, wanted = Papers(theta, T).combined(blocks, beta)
    np.testing.assert_allclose(found.mean, mean, rtol=1e-8, atol=1e-9)
    np.testing.assert_allclose(found.covariance, wanted, rtol=1e-8, atol=1e-8)
    np.testing.assert_array_equal(found.covariance, found.covariance.T)
    assert np.linalg.eigvalsh(found.covariance).min() >= -1e-9
    _, marginal = through_rounds(model, theta, blocks, T)
    np.testing.assert_allclose(np.diag(found.covariance), marginal.variance, rtol=1e-9)


@both_kinds
@pytest.mark.parametrize("rule", [*COMMITTEES, "npae"])
def test_what_has_no_joint_covariance_says_so(kind, rule):
    blocks, T, theta = problem(kind=kind)
    with pytest.raises(InputError, match="the variance of one place at a time: ask for return_std"):
        predicted(EXPERTS[kind](3, rule), theta, blocks, T, "covariance")


def test_the_printed_variance_has_a_joint_form_for_sparse_experts_only():
    blocks, T, theta = problem()
    model = ExactExperts(3, variance="paper")
    with pytest.raises(InputError, match="or choose variance='linear'"):
        predicted(model, theta, blocks, T, "covariance")
    blocks, T, theta = problem(kind="sparse")
    model = SparseExperts(3, variance="paper")
    joint = predicted(model, theta, blocks, T, "covariance").covariance
    marginal = predicted(model, theta, blocks, T).variance
    np.testing.assert_allclose(np.diag(joint), marginal, rtol=1e-9)
    assert np.linalg.eigvalsh(joint).min() >= -1e-9


# -- memory ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "rule"), [("exact", "npae"), ("exact", "optimal"), ("sparse", "npae")]
)
@pytest.mark.parametrize("sizes", [(60,) * 4, (300,) * 2], ids=["4 experts", "2 experts"])
def test_plans_know_what_predictions_of_all_experts_at_once_take(kind, rule, sizes):
    blocks, _, theta = problem(sizes, kind=kind)
    T = np.random.default_rng(0).uniform(-1, 1, (TILE_ROWS, 2))
    model = EXPERTS[kind](len(sizes), rule)
    m = 0 if theta.inputs is None else len(theta.inputs)
    shape = Shape(sum(sizes), 2, 2, sizes[0], m, 8, KERNEL.tiles, sizes[0])
    planned = model.footprint(shape).predict
    taken, _ = peak(predicted, model, theta, blocks, T)
    assert taken / 2 < planned < 3 * taken
