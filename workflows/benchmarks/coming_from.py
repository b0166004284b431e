"""Print what other packages predict with the models of docs/guides/coming-from.md.

    python workflows/benchmarks/coming_from.py

Runs the page's own code of every package that is installed, which need not be daskgp, and prints
a line of JSON for each: the package, its version, and the means and standard deviations in full.
The tests of the page compare them with those of daskgp.
"""

import importlib
import json
import re
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

PAGE = Path(__file__).parents[2] / "docs" / "guides" / "coming-from.md"
PACKAGES = {
    "PyKrige": "pykrige",
    "GSTools": "gstools",
    "GPBoost": "gpboost",
    "scikit-learn": "sklearn",
}


def blocks(text: str, language: str) -> list[str]:
    """Code of a language, block by block."""
    return re.findall(rf"^```{language}\n(.*?)^```", text, re.MULTILINE | re.DOTALL)


def predictions(data: str, code: str) -> dict[str, Any]:
    """Run the code of a model after that of the data, and return what it predicts."""
    names: dict[str, Any] = {}
    exec(data, names)
    exec(code, names)
    found = ("mean", "std", "evidence")
    return {name: np.asarray(names[name]).tolist() for name in found if name in names}


def main() -> None:
    data, *sections = re.split(r"^## ", PAGE.read_text(), flags=re.MULTILINE)
    (data,) = blocks(data, "python")
    for section in sections:
        package = section.splitlines()[0]
        if package not in PACKAGES:
            continue
        try:
            importlib.import_module(PACKAGES[package])
        except ImportError:
            print(json.dumps({"package": package, "not_installed": PACKAGES[package]}))
            continue
        for model, code in enumerate(blocks(section, "py")):
            found = predictions(data, code)
            line = {"package": package, "version": version(package), "model": model, **found}
            print(json.dumps(line))


if __name__ == "__main__":
    main()
