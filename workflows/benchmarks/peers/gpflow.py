"""GPflow's sparse and variational GPs, compiled."""

from collections.abc import Callable
from typing import Any

import numpy as np
from datasets import Split
from harness import Outcome

from peers.tasks import Task

NOISE, RATE, NATURAL = 0.1, 0.01, 0.1
Over = Callable[[Callable], bool]
"""Question after each step of a training, with a function that predicts: whether it is over."""


def sgpr(X: np.ndarray, y: np.ndarray, Z: np.ndarray, kernel: Any) -> Callable[[], float]:
    """Return a function that evaluates the bound of GPflow's SGPR with all its gradients."""
    import tensorflow as tf

    model = sparse(X, y, Z, kernel)

    @tf.function
    def evaluate() -> tuple:
        with tf.GradientTape() as tape:
            value = model.maximum_log_likelihood_objective()
        return value, tape.gradient(value, model.trainable_variables)

    return lambda: float(evaluate()[0])


def covariance_of(kernel: Any) -> Any:
    """Return daskgp's Matérn kernel as GPflow's."""
    import gpflow

    scale = np.array(kernel.lengthscale, np.float64)
    return getattr(gpflow.kernels, type(kernel).__name__)(kernel.variance, lengthscales=scale)


def sparse(X: np.ndarray, y: np.ndarray, Z: np.ndarray, kernel: Any) -> Any:
    """Return GPflow's SGPR of some rows."""
    import gpflow

    rows = X, y[:, None]
    return gpflow.models.SGPR(rows, covariance_of(kernel), Z.copy(), noise_variance=NOISE)


def train_sgpr(split: Split, Z: np.ndarray, kernel: Any, over: Over) -> None:
    """Train SGPR by L-BFGS until it is over."""
    import gpflow

    model = sparse(split.X, split.y, Z, kernel)

    def seen(step: int, variables: Any, values: Any) -> None:
        for variable, value in zip(variables, values, strict=True):
            variable.assign(value)
        if over(lambda X: moments(model, X)):
            raise StopIteration

    gpflow.optimizers.Scipy().minimize(
        model.training_loss_closure(compile=True),
        model.trainable_variables,
        step_callback=seen,
        options={"maxiter": 10_000, "maxfun": 100_000},
    )


def sgpr_within(split: Split, task: Task) -> Outcome:
    """Train inducing inputs of SGPR by L-BFGS until the time is up."""
    clock, predict, taken = task.clock(), [], 0

    def over(found: Callable) -> bool:
        predict[:] = [found]
        nonlocal taken
        taken += 1
        return clock.over

    train_sgpr(split, task.inducing(split), task.kernel(split), over)
    fitted = clock.seconds
    mean, variance = predict[0](split.X_test)
    return Outcome(fitted, clock.seconds - fitted, mean, variance, {"steps": taken})


def train_svgp(
    split: Split, Z: np.ndarray, kernel: Any, over: Over, steps: int, batch: int
) -> None:
    """Train SVGP on mini-batches, q by natural gradients and all else by Adam, until it is over."""
    import gpflow
    import tensorflow as tf

    likelihood = gpflow.likelihoods.Gaussian(NOISE)
    rows = len(split.y)
    model = gpflow.models.SVGP(covariance_of(kernel), likelihood, Z.copy(), num_data=rows)
    gpflow.set_trainable(model.q_mu, False)
    gpflow.set_trainable(model.q_sqrt, False)
    shuffled = tf.data.Dataset.from_tensor_slices((split.X, split.y[:, None]))
    shuffled = shuffled.repeat().shuffle(rows, seed=0).batch(batch).prefetch(2)
    loss = model.training_loss_closure(iter(shuffled), compile=False)
    natural, adam = gpflow.optimizers.NaturalGradient(NATURAL), tf.keras.optimizers.Adam(RATE)
    adam.build(model.trainable_variables)

    @tf.function
    def step() -> None:
        natural.minimize(loss, [(model.q_mu, model.q_sqrt)])
        with tf.GradientTape() as tape:
            value = loss()
        slopes = tape.gradient(value, model.trainable_variables)
        adam.apply_gradients(zip(slopes, model.trainable_variables, strict=True))

    for _ in range(steps):
        step()
        if over(lambda X: moments(model, X)):
            return


def moments(model: Any, X: np.ndarray, rows: int = 4_096) -> tuple[np.ndarray, np.ndarray]:
    """Return mean and variance (n,) of y."""
    parts = [model.predict_y(X[at : at + rows]) for at in range(0, len(X), rows)]
    means, variances = zip(*parts, strict=True)
    return np.concatenate(means)[:, 0], np.concatenate(variances)[:, 0]


class Classifier:
    """GPflow's SVGP of classes: as many latent functions, softmax, trained by Adam.

    Parameters
    ----------
    inducing, steps, batch : int
        Inducing inputs, which begin at rows, steps of Adam, and rows of a step.
    """

    def __init__(self, inducing: int, steps: int = 5_000, batch: int = 256) -> None:
        self.inducing, self.steps, self.batch = inducing, steps, batch

    def fit(self, X: np.ndarray, y: np.ndarray) -> "Classifier":
        """Train, with columns standardised."""
        import gpflow
        import tensorflow as tf

        self.classes_, codes = np.unique(y, return_inverse=True)
        self.shift, self.scale = X.mean(axis=0), X.std(axis=0)
        X, count = (X - self.shift) / self.scale, len(self.classes_)
        rng = np.random.default_rng(0)
        self.model = model = gpflow.models.SVGP(
            gpflow.kernels.Matern32(lengthscales=np.ones(X.shape[1])),
            gpflow.likelihoods.Softmax(count),
            X[rng.choice(len(X), min(self.inducing, len(X)), replace=False)],
            num_latent_gps=count,
            num_data=len(X),
        )
        rows = tf.data.Dataset.from_tensor_slices((X, codes[:, None].astype(np.int64)))
        rows = rows.repeat().shuffle(len(X), seed=0).batch(self.batch).prefetch(2)
        loss = model.training_loss_closure(iter(rows), compile=False)
        adam = tf.keras.optimizers.Adam(RATE)
        adam.build(model.trainable_variables)

        @tf.function
        def step() -> None:
            with tf.GradientTape() as tape:
                value = loss()
            slopes = tape.gradient(value, model.trainable_variables)
            adam.apply_gradients(zip(slopes, model.trainable_variables, strict=True))

        for _ in range(self.steps):
            step()
        return self

    def predict_proba(self, X: np.ndarray) -> np.ndarray:
        """Return probabilities (n, C)."""
        X = (X - self.shift) / self.scale
        parts = [self.model.predict_y(X[at : at + 512])[0] for at in range(0, len(X), 512)]
        found = np.concatenate([np.asarray(part) for part in parts])
        return found / found.sum(axis=1, keepdims=True)
