"""What the workers of a command are forked with; importing this imports it."""

import gc

gc.disable()
import daskgp.estimators  # noqa: E402
import daskgp.runtime.preload  # noqa: E402, F401

gc.enable()
gc.freeze()  # and so the pages that workers share are not written to
