"""Commands for installing crdebug: `crdebug setup`, `crdebug man`, `crdebug completion`."""

from __future__ import annotations

import click

_SHELLS = ("bash", "zsh", "fish")


@click.command("setup")
@click.option("--gdb", is_flag=True, help="Install the newer GDB even if the machine's works.")
def setup(gdb: bool) -> None:
    """Install what crdebug needs on this machine.

    No administrator is needed: a CRIU that works on this kernel, and a newer GDB if there is none
    with Python, go into your data directory. One line for apt names the missing Debian packages.
    """
    from crdebug.node.setup import become_setup

    become_setup(gdb=gdb)


@click.command("man")
@click.pass_context
def man(ctx: click.Context) -> None:
    """Write the manual page: `crdebug man | man -l -`."""
    from crdebug.commands.standard import standard
    from crdebug.ui.man_page import man_page

    root = ctx.find_root()
    assert isinstance(root.command, click.Group)
    click.echo(man_page(root.command, standard()), nl=False)


@click.command("completion")
@click.argument("shell", type=click.Choice(_SHELLS))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Write a shell's completion script.

    For bash: `eval "$(crdebug completion bash)"`.
    """
    from click.shell_completion import get_completion_class

    complete = get_completion_class(shell)
    assert complete is not None, shell
    click.echo(complete(ctx.find_root().command, {}, "crdebug", "_CRDEBUG_COMPLETE").source())
