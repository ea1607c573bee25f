"""No party sends more numbers than its page says: for every operation and kind, all messages of all
parties are recorded.
"""

from __future__ import annotations
