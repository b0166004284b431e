"""Modules that the workers of a command are forked with; importing this imports them."""

import gc
import os

from daskgp.runtime.ahead import SAFE

os.environ.pop(SAFE, None)  # it is for these imports alone
gc.disable()
try:
    import daskgp.estimators
    import daskgp.runtime.preload  # noqa: F401
finally:
    gc.enable()
gc.freeze()  # and so the pages that workers share are not written to
