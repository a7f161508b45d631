"""crdebug's version; the other side of a conversation must have the same."""

from __future__ import annotations

VERSION = "0.2.0"
