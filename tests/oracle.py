"""Dense definitions in plain NumPy: what every fast path is held against."""

import numpy as np


def evidence(K, y, s):
    """Log N(y | 0, K + s I), summed over the columns of y."""
    C = K + s * np.eye(len(K))
    sign, logdet = np.linalg.slogdet(C)
    assert sign > 0
    quadratic = (y * np.linalg.solve(C, y)).sum()
    return -0.5 * (quadratic + y.shape[1] * (logdet + len(y) * np.log(2 * np.pi)))


def posterior(K, Ks, Kss, y, s):
    """Mean (t, p) and covariance (t, t) of the exact GP."""
    C = K + s * np.eye(len(K))
    return Ks @ np.linalg.solve(C, y), Kss - Ks @ np.linalg.solve(C, Ks.T)


def nystrom(kernel, X, Z, jitter):
    """Q = K(X, Z) K(Z, Z)^-1 K(Z, X), the jitter relative to the mean diagonal."""
    Kzz = kernel(Z)
    Kzz = Kzz + jitter * np.diag(Kzz).mean() * np.eye(len(Z))
    Kxz = kernel(X, Z)
    return Kxz @ np.linalg.solve(Kzz, Kxz.T)


def titsias_bound(kernel, X, y, Z, s, jitter=1e-8):
    """[OPT] eq. 11: log N(y | 0, Q + s I) - tr(K - Q) / 2s, dense."""
    Q = nystrom(kernel, X, Z, jitter)
    gap = kernel.diag(X).sum() - np.trace(Q)
    return evidence(Q, y, s) - 0.5 * y.shape[1] * gap / s


def sparse_posterior(kernel, X, y, Z, s, T, jitter=1e-8):
    """[OPT] eq. 12 as the conditional of the joint model with covariance Q, exact K at T."""
    both = np.concatenate([X, T])
    Q = nystrom(kernel, both, Z, jitter)
    n = len(X)
    mean, covariance = posterior(Q[:n, :n], Q[n:, :n], Q[n:, n:], y, s)
    return mean, covariance + kernel(T) - Q[n:, n:]


def residual(kernel, X, Z, noise, jitter=1e-8):
    """R = K - Q + diag(noise), the noise (n,) or one number."""
    return kernel(X) - nystrom(kernel, X, Z, jitter) + np.diag(np.broadcast_to(noise, len(X)))


def markov_completion(R, blocks, order, rows=None):
    """[LMA] eq. 1, block by block as it is written: exact in the band, the recursion outside.

    ``blocks`` are the indices V_m of each block and ``rows`` those D_m among them that are
    training rows; all of them by default.
    """
    rows = blocks if rows is None else rows
    found = np.zeros_like(R)

    def part(m, n, of):
        """R-bar of the rows ``of`` of block m with all of block n > m."""
        if n - m <= order:
            return R[np.ix_(of[m], blocks[n])]
        if order == 0:
            return np.zeros((len(of[m]), len(blocks[n])))
        between = range(m + 1, min(m + order, len(blocks) - 1) + 1)
        D = np.concatenate([rows[k] for k in between])
        following = np.concatenate([part(k, n, rows) for k in between])
        return R[np.ix_(of[m], D)] @ np.linalg.solve(R[np.ix_(D, D)], following)

    for m, V in enumerate(blocks):
        found[np.ix_(V, V)] = R[np.ix_(V, V)]
        for n in range(m + 1, len(blocks)):
            found[np.ix_(V, blocks[n])] = part(m, n, blocks)
            found[np.ix_(blocks[n], V)] = found[np.ix_(V, blocks[n])].T
    return found


def sequential_completion(R, groups, near):
    """The covariance of groups of rows drawn one after another.

    Each is drawn from its exact conditional R given the groups ``near`` it, which come before it,
    or given an array of rows of theirs.
    """
    size = len(R)
    found, seen = np.zeros((size, size)), np.zeros(0, int)
    for own, given in zip(groups, near, strict=True):
        rows = (given,) if isinstance(given, np.ndarray) else (groups[j] for j in given)
        c = np.concatenate([np.zeros(0, int), *rows])
        P = np.linalg.solve(R[np.ix_(c, c)], R[np.ix_(c, own)]).T
        C = R[np.ix_(own, own)] - P @ R[np.ix_(c, own)]
        across = P @ found[np.ix_(c, seen)]
        found[np.ix_(own, seen)], found[np.ix_(seen, own)] = across, across.T
        found[np.ix_(own, own)] = C + P @ found[np.ix_(c, c)] @ P.T
        seen = np.concatenate([seen, own])
    return found


def aware_posterior(K, Ks, Kss, y, s, S):
    """[CAGP] eq. 5: mean and covariance with C = S (S' (K + s I) S)^-1 S' for the inverse."""
    C = S @ np.linalg.solve(S.T @ (K + s * np.eye(len(K))) @ S, S.T)
    return Ks @ C @ y, Kss - Ks @ C @ Ks.T


def aware_bound(K, y, s, S):
    """[CAGP] Lemma S3 by its definition: E_q log p(y | f) - KL(q(f) | p(f)), a column at a time."""
    n, (mean, covariance) = len(K), aware_posterior(K, K, K, y, s, S)
    logdets = [np.linalg.slogdet(A).logabsdet for A in (K, covariance)]
    trace, found = np.trace(np.linalg.solve(K, covariance)), 0.0
    for target, m in zip(y.T, mean.T, strict=True):
        misfit = ((target - m) ** 2).sum() + np.trace(covariance)
        found -= 0.5 * (misfit / s + n * np.log(2 * np.pi * s))
        found -= 0.5 * (m @ np.linalg.solve(K, m) + trace - n + logdets[0] - logdets[1])
    return found


def projected_targets(S):
    """[CAGP] eq. 7: S' = S chol(S' S)^-T, whose columns are orthonormal."""
    return np.linalg.solve(np.linalg.cholesky(S.T @ S), S.T).T


def projected_evidence(K, y, s, S):
    """[CAGP] eq. 9 with its sign changed: log N(S'' y | 0, S'' (K + s I) S'), S' of eq. 7."""
    S = projected_targets(S)
    return evidence(S.T @ K @ S, S.T @ y, s)


def on_disk(arrays):
    """Bytes of arrays in a store, where the zeros above the diagonal of a factor take none."""
    return sum(a.nbytes / 2 if _is_factor(a) else a.nbytes for a in map(np.asarray, arrays))


def _is_factor(a):
    return a.ndim == 2 and a.shape[0] == a.shape[1] > 2 and not np.triu(a, 1).any()


def gaussian_approximation(likelihood, K, y, steps=200, share=0.5, weight=1.0):
    """Mean (n,) and covariance (n, n) of the Gaussian q(f) of the largest bound, and the bound.

    The log density of each row counts by its weight.

    Natural-gradient steps on dense arrays, a share of each: q's precision is K^-1 plus a diagonal.
    """
    n = len(y)
    m, precision, shift = np.zeros(n), np.full(n, 0.1), np.zeros(n)
    for _ in range(steps):
        V = np.linalg.inv(np.linalg.inv(K) + np.diag(precision))
        m = V @ shift
        found = likelihood.expected(y[:, None], m[:, None], np.diag(V))
        step = weight * np.maximum(-2.0 * found.by_variance[:, 0], 1e-4)
        precision = (1 - share) * precision + share * step
        shift = (1 - share) * shift + share * (weight * found.by_mean[:, 0] + step * m)
    V = np.linalg.inv(np.linalg.inv(K) + np.diag(precision))
    m = V @ shift
    found = likelihood.expected(y[:, None], m[:, None], np.diag(V))
    ratio = np.linalg.solve(K, V)
    divergence = 0.5 * (np.trace(ratio) - n - np.linalg.slogdet(ratio)[1])
    divergence += 0.5 * m @ np.linalg.solve(K, m)
    return m, V, np.sum(weight * found.values[:, 0]) - divergence


def sampled_posterior(likelihood, K, y, draws=30_000, seed=0):
    """Mean (n,) and standard deviation (n,) of f given y, by elliptical slice sampling."""
    rng, n = np.random.default_rng(seed), len(y)
    root, f = np.linalg.cholesky(K + 1e-10 * np.eye(n)), np.zeros(n)

    def log_p(f):
        return float(likelihood.log_p(y[:, None], f[:, None]).value.sum())

    first = second = np.zeros(n)
    height = log_p(f)
    for i in range(draws):
        other, level = root @ rng.standard_normal(n), height + np.log(rng.uniform())
        angle = rng.uniform(0.0, 2 * np.pi)
        least, most = angle - 2 * np.pi, angle
        while True:
            tried = f * np.cos(angle) + other * np.sin(angle)
            height = log_p(tried)
            if height > level:
                break
            least, most = (angle, most) if angle < 0 else (least, angle)
            angle = rng.uniform(least, most)
        f = tried
        if i >= draws // 10:
            first, second = first + f, second + f**2
    count = draws - draws // 10
    return first / count, np.sqrt(second / count - (first / count) ** 2)
