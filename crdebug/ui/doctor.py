"""The command `crdebug doctor`: of this machine, or of several hosts."""

from __future__ import annotations

import click

from crdebug.ui.printable import echo
from crdebug.ui.waiting import wait


@click.command("doctor")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
@click.option("--verbose", is_flag=True, help="Also how launchers are set up, and why.")
@click.option("--hosts", metavar="A,B,...", help="What these hosts have instead, asked by ssh.")
@click.pass_context
def doctor(ctx: click.Context, as_json: bool, verbose: bool, hosts: str | None) -> None:
    """Show what this machine has and what it lacks.

    If your config file names a GDB or a compiler, it looks for that one. Hints say what to do. The
    exit status is 0 if jobs can run; with --hosts, if their ranks can be debugged on all of them.
    """
    from crdebug.commands import doctor as doctors
    from crdebug.commands.preferences import read_own

    if hosts is not None:
        if verbose:
            raise click.UsageError("--hosts has nothing more to say with --verbose")
        ctx.exit(_of_hosts(hosts, as_json))
    _, settings = read_own()
    report = doctors.diagnose(settings)
    echo(doctors.as_json(report) if as_json else doctors.as_text(report, verbose=verbose))
    ctx.exit(0 if doctors.main_job_can_run(report) else 1)


def _of_hosts(hosts: str, as_json: bool) -> int:
    from crdebug.commands import doctor_hosts as doctors
    from crdebug.detached.machines import machines

    named = tuple(dict.fromkeys(filter(None, (each.strip() for each in hosts.split(",")))))
    if not named:
        raise click.BadParameter("names no host; write it like n1,n2", param_hint="--hosts")
    report = doctors.compare(wait(machines(named)))
    echo(doctors.as_json(report) if as_json else doctors.as_text(report))
    return 0 if doctors.all_can_be_looked_at(report) else 1
