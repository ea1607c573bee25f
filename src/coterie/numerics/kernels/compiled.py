"""How numba compiles kernels: with a cache on disk, division by zero as in numpy, and without
holding other threads up.

numba compiles a kernel again when its own file changes. After a change of this file, delete the
caches (`__pycache__`).
"""

from __future__ import annotations

import numba

compiled = numba.njit(nogil=True, cache=True, error_model="numpy")
inlined = numba.njit(inline="always")
"""For a part of a kernel that sums in any order: its code is copied into the kernel before
optimisation, so that there is only one version of it. Otherwise the last bit could depend on
whether the kernel comes from the cache.
"""
