"""Likelihoods of y given the latent f."""

from daskgp.likelihoods.base import Expectation, Likelihood, LogDensity
from daskgp.likelihoods.bernoulli import Bernoulli
from daskgp.likelihoods.beta import Beta
from daskgp.likelihoods.binomial import Binomial
from daskgp.likelihoods.censored import Censored
from daskgp.likelihoods.gamma import Gamma
from daskgp.likelihoods.gaussian import Gaussian
from daskgp.likelihoods.lognormal import LogNormal
from daskgp.likelihoods.negative_binomial import NegativeBinomial
from daskgp.likelihoods.ordinal import Ordinal
from daskgp.likelihoods.poisson import Poisson
from daskgp.likelihoods.registry import NAMES, REGISTRY, by_name, register
from daskgp.likelihoods.student_t import StudentT

__all__ = [
    "NAMES",
    "REGISTRY",
    "Bernoulli",
    "Beta",
    "Binomial",
    "Censored",
    "Expectation",
    "Gamma",
    "Gaussian",
    "Likelihood",
    "LogDensity",
    "LogNormal",
    "NegativeBinomial",
    "Ordinal",
    "Poisson",
    "StudentT",
    "by_name",
    "register",
]
