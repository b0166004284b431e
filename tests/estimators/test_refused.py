"""Settings that cannot be used are refused in one line that says what to do, and leave nothing."""

from contextlib import nullcontext

import numpy as np
import pytest
import scipy.sparse as sp
from commands import rows
from fits import files_below, zarr_rows

from daskgp import kernels, testing
from daskgp.errors import InputError
from daskgp.estimators import ESTIMATORS, requirements

X, Y = rows()
RNG = np.random.default_rng(3)
CHOSEN = RNG.standard_normal((300, 12))
HOLES = np.where(np.arange(12) == 7, np.nan, CHOSEN)
ADAM = {"optimizer": "adam"}
EXACT = {"expert": "exact"}
WHOLE = "a whole number of at least 1"

SMALL = {
    "sgpr": {"n_inducing": 10, "max_iter": 2},
    "lma": {"n_support": 8, "block_rows": 40, "max_iter": 3},
    "vecchia": {"kernel": kernels.Matern32(0.5), "n_neighbours": 8, "block_rows": 60},
    "cagp": {"n_actions": 8, "max_iter": 3},
    "experts": {"n_experts": 5, "n_inducing": 12, "max_iter": 3},
    "opticom": {},
    "decoupled": {"n_mean": 30, "n_covariance": 20, "max_iter": 2, "batch_rows": 50},
    "svgp": {"n_inducing": 20, "max_iter": 2, "batch_rows": 50},
}
"""Settings of a method that are left out where a case makes them idle."""

SGPR = [
    ({"n_inducing": 301}, "301 inducing inputs for 300 usable rows: choose at most 300"),
    ({"n_inducing": 0}, f"n_inducing=0: {WHOLE}"),
    ({"n_inducing": 2.5}, "n_inducing=2.5"),
    ({"n_inducing": "many"}, "n_inducing='many'"),
    ({"n_inducing": None}, "n_inducing=None"),
    ({"inducing": "best"}, "inducing='best': choose 'greedy', 'kmeans', 'random' or give an"),
    ({"inducing": np.ones((4, 5))}, "inducing has shape (4, 5)"),
    ({"inducing": np.full((4, 2), np.nan)}, "finite inputs"),
    ({"inducing": [[1.0, "a"]]}, "inducing"),
    ({"train_inducing": 2}, "train_inducing=2: choose one of True, False"),
    ({"train_inducing": "yes"}, "train_inducing='yes'"),
    ({"train_blocks": 0}, "train_blocks=0"),
    ({"train_blocks": "all"}, "train_blocks='all'"),
    ({"noise_variance": -0.1}, "noise_variance=-0.1: it must be greater than 0"),
    ({"noise_variance": "low"}, "noise_variance='low': a number is needed"),
    ({"mean": "cubic"}, "mean='cubic': choose one of 'zero', 'constant', 'linear'"),
    ({"kernel": "matern42"}, "unknown kernel 'matern42'"),
    ({"kernel": kernels.RBF}, "kernel=RBF is a class: give a kernel, such as RBF()"),
    ({"kernel": "rbf + nonsense"}, "nonsense"),
    ({"kernel": "matern32(x=1)"}, "it has lengthscale, variance, ard, active_dims"),
    ({"kernel": "rbf(name=1)"}, "it has lengthscale, variance, ard, active_dims"),
    ({"kernel": 3.5}, "kernel=3.5"),
    ({"kernel": kernels.RBF((1.0, 1.0, 1.0))}, "RBF has 3 lengthscales"),
    ({"kernel": kernels.RBF(1.0, active_dims=(2,))}, "active_dims"),
    ({"optimizer": "sgd"}, "optimizer='sgd': choose one of"),
    ({"max_iter": 1.5}, f"max_iter=1.5: {WHOLE} is needed"),
    ({"max_iter": 10.0}, "max_iter=10.0: a whole number"),
    ({"block_rows": -5}, f"block_rows=-5: {WHOLE}"),
    ({"block_rows": 70.0}, "block_rows=70.0: a whole number"),
    ({"random_state": "seed"}, "random_state='seed'"),
    ({"random_state": 0.0}, "random_state=0.0: a whole number"),
    ({"device": "tpu"}, "device='tpu': choose one of"),
    ({"dtype": "float16"}, "dtype='float16': choose one of"),
    ({"store": 3}, "store=3: give the path"),
    ({"store": " "}, "store=' ': give the path"),
]
LMA = [
    ({"markov_order": 8}, "markov_order=8 but there are only 8 blocks of 38 rows"),
    ({"markov_order": -1}, "markov_order=-1: a whole number of at least 0"),
    ({"markov_order": 1.5}, "markov_order=1.5: a whole number of at least 0"),
    ({"predict_order": -1}, "predict_order=-1: a whole number of at least 0"),
    ({"predict_rows": 0}, f"predict_rows=0: {WHOLE}"),
    ({"predict_rows": 9, "predict_order": 1}, "no effect with predict_order=1: choose predict"),
    ({"predict_rows": 9, "neighbours": "order"}, "predict_rows=9 has no effect with neigh"),
    ({"prediction": "paper"}, "prediction='paper' conditions on blocks on either side in the"),
    ({"neighbours": "next"}, "neighbours='next': choose one of 'nearest', 'order'"),
    ({"prediction": "exact"}, "prediction='exact': choose one of 'consistent', 'paper'"),
    ({"order": "hilbrt"}, "(did you mean 'hilbert'?)"),
    ({"order": ("x0", "x7")}, "x7"),
    ({"order": "random"}, "order='random' does not keep nearby rows together"),
    ({"n_support": 0}, f"n_support=0: {WHOLE}"),
    ({"n_support": 301}, "301 support inputs for 300 usable rows: choose at most 300"),
    ({"support": "gredy"}, "support='gredy': did you mean 'greedy'? Choose 'greedy', 'kmea"),
    ({"support": np.ones((3, 5))}, "support has shape (3, 5)"),
    ({"train_support": 1}, "train_support=1: choose one of True, False"),
]
VECCHIA = [
    ({"n_neighbours": 0}, f"n_neighbours=0: {WHOLE}"),
    ({"n_neighbours": 2.5}, f"n_neighbours=2.5: {WHOLE}"),
    ({"predict_neighbours": 0}, f"predict_neighbours=0: {WHOLE}"),
    ({"n_support": -1}, "n_support=-1: a whole number of at least 0"),
    ({"n_support": 301}, "301 support inputs for 300 usable rows: choose at most 300"),
    ({"support": "kmeans"}, "no effect with n_support=0: choose n_support of at least 1"),
    ({"training_rows": "all"}, f"training_rows='all': choose {WHOLE}, 'auto' or N"),
    ({"training_rows": 0}, f"training_rows=0: {WHOLE}"),
    ({"training_rows": 1}, "at least 30, 'auto', or None for all 300"),
    ({"training_rows": 29}, "training_rows=29 but 3 hyper-parameters"),
    ({"training_rows": 19, "fixed": "noise_variance"}, "choose at least 20,"),
    ({"training_rows": 39, "kernel": kernels.Matern32(ard=True)}, "choose at least 40,"),
    ({"order": "random"}, "order='random' does not keep nearby rows together"),
]
CAGP = [
    ({"n_actions": 301}, "301 actions for 300 usable rows: choose at most"),
    ({"n_actions": 0}, f"n_actions=0: {WHOLE} is needed"),
    ({"n_actions": 1.5}, f"n_actions=1.5: {WHOLE} is needed"),
    ({"n_actions": "a"}, f"n_actions='a': {WHOLE}"),
    ({"actions": "cgs"}, "actions='cgs': choose one of 'sparse', 'cg', 'random', 'eig"),
    ({"actions": None}, "actions of shape (): give finite numbers (n, n_actions)"),
    ({"actions": Y}, "actions of shape (300,): give finite numbers (n,"),
    ({"actions": CHOSEN[None]}, "actions of shape (1, 300, 12): give finite numbers"),
    ({"actions": HOLES}, "actions of shape (300, 12): give finite numbers"),
    ({"actions": CHOSEN[:, :0]}, "actions of shape (300, 0)"),
    ({"actions": [["a", "b"]] * 300}, "actions"),
    ({"actions": sp.csc_array(CHOSEN)}, "actions"),
    ({"actions": CHOSEN[:50]}, "actions have 50 rows, the training data 300: give one for each"),
    ({"actions": np.ones((300, 301))}, "301 actions for 300 usable rows"),
    ({"actions": "eigen", "n_actions": 300}, "300 eigenvectors of 300 usable rows: choose at"),
    ({"support": 38}, "support=38 for 8 actions on 300 usable rows: an action has at most 37"),
    ({"support": 0}, f"support=0: {WHOLE} is needed"),
    ({"support": 2.5}, f"support=2.5: {WHOLE} is needed"),
    ({"support": 2, "actions": "cg"}, "support=2 has no effect with actions='cg'"),
    ({"support": 2, "actions": CHOSEN}, "support=2 has no effect with"),
    ({"batch_rows": 301, "support": 2, **ADAM}, "batch_rows=301 for 300 usable rows: choose"),
    ({"batch_rows": 0, **ADAM}, f"batch_rows=0: {WHOLE} is needed"),
    ({"batch_rows": 20}, "batch_rows=20 has no effect with optimizer='auto': choose optimizer"),
    ({"batch_rows": 20, **ADAM}, "batch_rows=20 saves nothing if all rows are"),
    ({"batch_rows": 20, "actions": "cg", **ADAM}, "batch_rows=20 has no effect"),
    ({"batch_rows": 20, "loss": "projected", **ADAM}, "batch_rows=20 has no"),
    ({"refreshes": 0, "actions": "cg"}, f"refreshes=0: {WHOLE}"),
    ({"action_tol": 0, "actions": "cg"}, "action_tol=0: it must be greater than 0"),
    ({"learning_rate": 0, **ADAM}, "learning_rate=0: it must be greater than 0"),
    ({"loss": "evidence"}, "loss='evidence': choose one of 'elbo', 'projected'"),
    ({"order": "x7"}, "order 'x7' is neither one of auto, hilbert"),
    ({"order": "x7", "support": 3}, "order 'x7' is neither one of"),
    ({"order": 5}, "order=5: name 1 to 3 different columns"),
    ({"tol": None}, "tol=None: a number is needed"),
]
EXPERTS = [
    ({"n_experts": 301}, "n_experts=301 for 300 usable rows: choose at"),
    ({"n_experts": 0}, f"n_experts=0: {WHOLE} is needed"),
    ({"n_experts": 1.5}, f"n_experts=1.5: {WHOLE} is needed"),
    ({"n_experts": "a"}, f"n_experts='a': {WHOLE} is needed"),
    ({"expert": "dense"}, "expert='dense': choose one of 'sparse', 'exact'"),
    ({"partition": "kmeans"}, "partition='kmeans': choose one of 'random', 'block'"),
    ({"partition": "block", "order": "x7"}, "order 'x7' is neither one of"),
    ({"partition": "block", "order": "random"}, "not keep nearby rows together"),
    ({"aggregation": "moe"}, "aggregation='moe': choose one of 'optimal', 'npae'"),
    ({"weights": "best"}, "weights='best': choose one of 'projection', 'paper'"),
    ({"variance": "exact"}, "variance='exact': choose one of 'linear', 'paper'"),
    ({"training": "sgd"}, "training='sgd': choose one of 'fact', 'fedavg'"),
    ({"noise_in_experts": 1}, "noise_in_experts=1: choose one of True, False"),
    ({"noise_in_experts": True}, "no effect with aggregation='optimal'"),
    (
        {"noise_in_experts": True, "aggregation": "npae"},
        "no effect with aggregation='npae': cho",
    ),
    ({**EXACT, "central": 1.5}, "central=1.5: it must be greater"),
    ({**EXACT, "central": 0}, "central=0: it must be greater than 0"),
    ({**EXACT, "central": "a"}, "central='a': a number is needed"),
    ({"central": 0.5}, "central=0.5 has no effect with weights='projection'"),
    ({**EXACT, "central": 0.5, "aggregation": "poe"}, "central=0.5 has no effect with aggregation"),
    ({"weights": "paper", "central": 0.003}, "of 300 usable rows is less than one row: choose a l"),
    ({"ridge": -1e-6}, "ridge=-1e-06: it must be from 0 to 1"),
    ({"ridge": "none"}, "ridge='none': a number is needed"),
    ({"shrinkage": 2}, "shrinkage=2: it must be from 0 to 1"),
    ({**EXACT, "shrinkage": 0.1}, "shrinkage=0.1 has no effect with expert='exact': choose"),
    ({"sampling_rate": 0.5}, "sampling_rate=0.5 has no effect with training"),
    ({"order": "hilbert"}, "order='hilbert' has no effect with partition='random'"),
    (
        {"weights": "paper", "aggregation": "poe"},
        "no effect with aggregation='poe': choose aggregation='optimal', or leave weights out",
    ),
    ({**EXACT, "train_inducing": True}, "no effect with expert='exact': choose expert='sparse'"),
    ({"aggregation": "grbcm", "partition": "block"}, "choose partition="),
    ({"training": "fedavg", "learning_rate": 0}, "learning_rate=0: it must be"),
    ({"training": "admm", "rho": -1.0}, "rho=-1.0: it must be greater than 0"),
    ({"training": "fedprox", "mu": -0.1}, "mu=-0.1: it must be 0 or greater"),
    ({"training": "pxadmm", "lipschitz": np.nan}, "lipschitz=nan: it must be 0 or"),
    ({"training": "fedavg", "sampling_rate": 0}, "sampling_rate=0: it must be greater"),
    ({"training": "fedavg", "sampling_rate": 1.1}, "sampling_rate=1.1: it must"),
    ({"training": "admm", "local_steps": 0}, f"local_steps=0: {WHOLE}"),
    ({"training": "admm", "local_steps": 2.5}, "local_steps=2.5: a whole number"),
]
OPTICOM = [
    ({"level": 0}, f"level=0: {WHOLE}"),
    ({"level": 2.5}, f"level=2.5: {WHOLE}"),
    (
        {"level": 9},
        "has more than max_points=4,096 points: choose at most level=8, which has 1,793",
    ),
    ({"level": 10**9}, "choose at most level=8"),
    ({"level": 4, "max_points": 48}, "choose at most level=3, which has 17"),
    ({"max_points": 0}, f"max_points=0: {WHOLE}"),
    ({"weights": "optimal"}, "weights='optimal': choose one of 'projection', 'paper'"),
    ({"variance": "exact"}, "variance='exact': choose one of 'linear', 'paper'"),
    ({"ridge": -1e-6}, "ridge=-1e-06: it must be 0 or greater"),
    ({"ridge": "none"}, "ridge='none': a number is needed"),
    ({"bounds": [[0, 1]]}, "bounds has shape (1, 2) for 2 features: shape (2, 2) is needed"),
    ({"bounds": [0, 1]}, "bounds has shape (2,) for 2 features"),
    ({"bounds": [[0, 1], [2, 2]]}, "bounds of feature 1 are 2 and 2: two finite numbers"),
    ({"bounds": [[1, 0], [0, 1]]}, "bounds of feature 0 are 1 and 0"),
    ({"bounds": [[0, 1], [0, np.inf]]}, "bounds of feature 1 are 0 and inf"),
    ({"bounds": "wide"}, "bounds='wide': give a lowest and a highest number"),
]
DECOUPLED = [
    ({"batch_rows": 301}, "batch_rows=301 for 300 rows to train on: choose at most 300"),
    ({"batch_rows": 0}, f"batch_rows=0: {WHOLE} is needed"),
    ({"batch_rows": 280, "validation": 0.1, "check_every": 1}, "=280 for 270 rows to train on: ch"),
    ({"n_covariance": 31}, "n_covariance=31 exceeds n_mean=30, which counts those of the"),
    ({"n_covariance": 31, "parametrization": "direct"}, "n_covariance=31 exceeds n_mean=30, which"),
    ({"n_mean": 301}, "n_mean=301 for 300 rows to train on: choose at most 300"),
    ({"n_mean": 400, "n_covariance": 301}, "301 functions of the covariance for 300 usable"),
    ({"n_mean": 2.5}, f"n_mean=2.5: {WHOLE} is needed"),
    ({"n_mean": "many"}, f"n_mean='many': {WHOLE} is needed"),
    ({"n_covariance": 0}, f"n_covariance=0: {WHOLE} is needed"),
    ({"likelihood": "cauchy"}, "likelihood='cauchy': choose one of 'gaussian', 'student-t', 'be"),
    ({"basis": "fourier"}, "basis='fourier': choose one of 'kernel', 'se-ard', 'generalized'"),
    ({"parametrization": "coupled"}, "parametrization='coupled': choose one of 'hybrid', 'di"),
    ({"parametrization": None}, "parametrization=None: choose one of 'hybrid', 'direct'"),
    ({"share": False}, "share=False has no effect with parametrization='hybrid': choose"),
    (
        {"basis": "generalized", "kernel": "matern32"},
        "basis='generalized' needs an RBF kernel, not Matern32: choose kernel='rbf(ard=true)'",
    ),
    ({"basis": "se-ard", "kernel": "matern52"}, "basis='se-ard' needs an RBF kernel, not Mat"),
    ({"natural": 0.1, "parametrization": "direct"}, "no effect with parametrization='direct': cho"),
    ({"natural": 2}, "natural=2: it must be greater than 0 and at most 1"),
    ({"natural": 0}, "natural=0: it must be greater than 0 and at most 1"),
    ({"natural": "fast"}, "natural='fast': a number is needed"),
    ({"validation": 0.9}, "validation=0.9: hold out at most half of the rows, 0.5"),
    ({"validation": 0}, "validation=0: it must be greater than 0 and at most 1"),
    ({"validation": 0.2}, "check_every=50 exceeds max_iter=2: held-out rows would never be"),
    ({"check_every": 0, "validation": 0.1}, f"check_every=0: {WHOLE} is needed"),
    ({"patience": 0, "validation": 0.1}, f"patience=0: {WHOLE} is needed"),
    ({"optimizer": "l-bfgs"}, "optimizer='l-bfgs' needs all rows at every step: choose 'adam"),
    ({"mean": "linear", "likelihood": "poisson"}, "mean='linear' is a mean of measured targets:"),
    ({"precondition": "full"}, "precondition='full': choose one of 'blocks', 'jacobi', None"),
    ({"n_columns": 0}, f"n_columns=0: {WHOLE} is needed"),
    ({"n_added": 0}, f"n_added=0: {WHOLE} is needed"),
    ({"n_subset": 0}, f"n_subset=0: {WHOLE} is needed"),
    (
        {"hyperparameters": "subset", "likelihood": "student-t"},
        "hyperparameters='subset' takes the evidence of a Gaussian likelihood, not of 'student",
    ),
    ({"hyperparameters": "evidence"}, "hyperparameters='evidence': choose one of"),
    ({"gradients": "gpu"}, "gradients='gpu': choose one of 'workers', 'client'"),
    ({"inducing": "best"}, "inducing='best': choose one of 'greedy', 'kmeans', 'random', 'stream'"),
    ({"inducing": X[:9, :1]}, "inducing has shape (9, 1)"),
]
SVGP = [
    ({"n_inducing": 301}, "301 inducing inputs for 300 usable rows: choose at most 300"),
    ({"inducing": "foo"}, "'greedy', 'kmeans', 'random', 'stream'"),
]
TABLES = {
    "sgpr": SGPR,
    "lma": LMA,
    "vecchia": VECCHIA,
    "cagp": CAGP,
    "experts": EXPERTS,
    "opticom": OPTICOM,
    "decoupled": DECOUPLED,
    "svgp": SVGP,
}
AT_THE_DATA = ("inducing has", "finite inputs", "support has", "RBF has", "active_dims")
"""Beginnings of what is said once the rows are read."""


def cases():
    for name, table in TABLES.items():
        for settings, says in table:
            said = "-".join(f"{key}={value!r}"[:24] for key, value in settings.items())
            yield pytest.param(name, settings, says, id=f"{name}-{said}")


@pytest.mark.parametrize(("name", "settings", "says"), [*cases()])
def test_settings_that_cannot_be_used(name, settings, says, temporary, tmp_path):
    kind, small = ESTIMATORS[name], {"progress": False, "store": str(tmp_path / "kept")}
    chosen = small | SMALL[name] | settings
    idle = requirements.idle(kind(**chosen)).keys() - settings.keys()
    model = kind(**{key: value for key, value in chosen.items() if key not in idle})
    given = zarr_rows(tmp_path / "t.zarr", X, np.round(np.abs(Y)))
    for act in (model.fit, model.plan):
        late = says.startswith(AT_THE_DATA)
        if late and act == model.plan:
            continue
        lazily = nullcontext() if late else testing.no_compute()
        with lazily, pytest.raises(InputError) as error:
            act(*given)
        assert says in str(error.value)
        assert "\n" not in str(error.value)
    assert not hasattr(model, "solved_")
    assert files_below(temporary, tmp_path / "kept") == []
