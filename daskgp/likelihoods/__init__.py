"""Likelihoods of y given the latent f."""

from daskgp.likelihoods.base import Expectation, Likelihood, LogDensity
from daskgp.likelihoods.bernoulli import Bernoulli
from daskgp.likelihoods.gaussian import Gaussian
from daskgp.likelihoods.poisson import Poisson
from daskgp.likelihoods.registry import NAMES, REGISTRY, by_name, register
from daskgp.likelihoods.student_t import StudentT

__all__ = [
    "NAMES",
    "REGISTRY",
    "Bernoulli",
    "Expectation",
    "Gaussian",
    "Likelihood",
    "LogDensity",
    "Poisson",
    "StudentT",
    "by_name",
    "register",
]
