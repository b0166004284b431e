"""The base classes of scikit-learn, which has no types: what type checkers know of them."""

from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:

    class BaseEstimator:
        """Base of estimators."""

        def get_params(self, deep: bool = True) -> dict[str, Any]:
            """Return settings by name."""

        def set_params(self, **params: Any) -> Self:
            """Change settings by name."""

        def get_metadata_routing(self) -> Any:
            """Return which arguments a meta-estimator passes on."""

        def __sklearn_tags__(self) -> Any:
            """Return what is known of the estimator."""

        def __sklearn_clone__(self) -> Self:
            """Return an unfitted copy."""

        def __getstate__(self) -> dict[str, Any]:
            """Return what is pickled."""

    class RegressorMixin:
        """Base of regressors."""

    class ClassifierMixin:
        """Base of classifiers."""

    class MetaEstimatorMixin:
        """Base of estimators that are made of others."""

else:
    from sklearn.base import BaseEstimator, ClassifierMixin, MetaEstimatorMixin, RegressorMixin

__all__ = ["BaseEstimator", "ClassifierMixin", "MetaEstimatorMixin", "RegressorMixin"]
