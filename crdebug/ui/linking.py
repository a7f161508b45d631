"""`crdebug app`: how to link a program that makes requests of crdebug."""

from __future__ import annotations

import click

from crdebug.ui.waiting import wait


@click.command("app")
@click.option("--cflags", is_flag=True, help="Print the compiler's options.")
@click.option(
    "--libs", is_flag=True, help="Print the linker's options, to follow the program's files."
)
@click.option("--python", "module", is_flag=True, help="Print the path of crdebug.app.")
@click.option(
    "--fortran",
    metavar="COMPILER",
    default=None,
    help="The compiler for the Fortran module; by default gfortran, if there is one.",
)
def app(cflags: bool, libs: bool, module: bool, fortran: str | None) -> None:
    """Print how to link with crdebug_app.h.

    For example `mpicc x.c $(crdebug app --cflags --libs)`.
    """
    from crdebug import app as for_python
    from crdebug.base.deadline import Deadline
    from crdebug.base.settings import Settings
    from crdebug.native.applib.build import build_library, find_fortran, pkg_words

    if module:
        click.echo(for_python.__file__)
    if not module or cflags or libs:
        settings = Settings()
        compiler = find_fortran() if fortran is None else fortran
        home = wait(build_library(settings.compiler, compiler, Deadline(settings.launch)))
        both = not (cflags or libs)
        click.echo(pkg_words(home, cflags=cflags or both, libs=libs or both))
