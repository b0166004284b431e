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
