"""scikit-learn's own checks of estimators, and its tools around ours."""

from sklearn.utils.estimator_checks import parametrize_with_checks

from daskgp.estimators import ESTIMATORS

COMMON = {"kernel": "rbf", "progress": False, "device": "cpu"}
SETTINGS = {
    "sgpr": {"n_inducing": 8, "max_iter": 15},
    "lma": {"n_support": 4, "max_iter": 2},
    "pic": {"n_support": 4, "max_iter": 2},
    "experts": {"n_inducing": 8, "n_experts": 2, "max_iter": 15},
    "opticom": {"level": 1, "max_iter": 15},
    "cagp": {"n_actions": 5, "max_iter": 2},
    "cggp": {"max_iter": 50},
    "decoupled": {"n_mean": 8, "n_covariance": 6, "n_subset": 60, "max_iter": 40},
    "svgp": {"n_inducing": 8, "n_subset": 60, "max_iter": 40},
    "ssgp": {"n_spectral": 10, "max_iter": 2},
    "exact": {"max_iter": 2},
}


def tiny(name):
    return ESTIMATORS[name](**COMMON, **SETTINGS[name])


def test_every_estimator_is_checked():
    assert set(SETTINGS) == set(ESTIMATORS)


def failing(estimator):
    return {}


@parametrize_with_checks([tiny(name) for name in SETTINGS], expected_failed_checks=failing)
def test_checks_of_scikit_learn(estimator, check):
    check(estimator)
