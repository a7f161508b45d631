"""The program that nobody here wrote: a melting Lennard-Jones crystal, by LAMMPS."""

from __future__ import annotations


def melt(cells: int, steps: int, output: str = "thermo 100") -> str:
    """The input.

    cells: along each side of the box, of four atoms each.
    output: what it prints.
    """
    return f"""units lj
atom_style atomic
lattice fcc 0.8442
region box block 0 {cells} 0 {cells} 0 {cells}
create_box 1 box
create_atoms 1 box
mass 1 1.0
velocity all create 3.0 87287
pair_style lj/cut 2.5
pair_coeff 1 1 1.0 1.0 2.5
neighbor 0.3 bin
neigh_modify every 20 delay 0 check no
fix 1 all nve
{output}
run {steps}
"""
