"""The options of commands that can write a picture: --png, --svg."""

from __future__ import annotations

from pathlib import Path

from crdebug.base.errors import BadInput
from crdebug.commands.arguments import option
from crdebug.commands.registry import Call

PNG = option("--png", "FILE", "write it as a PNG file", read=str, default="")
SVG = option("--svg", "FILE", "write it as an SVG file", read=str, default="")


def picture_file(call: Call) -> Path | None:
    """Where the picture is to go. Raises BadInput for a name that is another format's."""
    for argument in (PNG, SVG):
        if name := call[argument]:
            path, suffix = Path(name), argument.name.replace("--", ".")
            if path.suffix.lower() != suffix:
                raise BadInput(f"'{name}' does not end with {suffix}")
            return path
    return None
