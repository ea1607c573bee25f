"""The old name of `coterie.transport`: what was documented is found here for one version more."""

import sys
import warnings

from coterie.transport import gossip, in_process

warnings.warn("coterie.carriers is now coterie.transport.", DeprecationWarning, stacklevel=2)
sys.modules |= {f"{__name__}.gossip": gossip, f"{__name__}.in_process": in_process}
