"""ELF files as crdebug reads them, beside what pyelftools says of the same ones."""

from __future__ import annotations

import os
import random
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile

from crdebug.acquire.elf import Elf

pytestmark = pytest.mark.unit

_SOURCE = """
#include <stdio.h>
int step, big_step;            // one name is the end of the other
static int hidden;
int MPI_Init(void) { return hidden++; }
int main(void) { return MPI_Init() + step + big_step + puts(""); }
"""
_NAMES = ("step", "big_step", "hidden", "main", "puts", "no_such")


def compiled(directory: Path, *options: str) -> Path:
    source, made = directory / "some.c", directory / "some"
    source.write_text(_SOURCE)
    subprocess.run(["cc", "-g", *options, "-o", made, source], check=True, timeout=60)
    return made


def symbols_by_pyelftools(path: Path, names: Sequence[str]) -> dict[str, int]:
    with path.open("rb") as file:
        table = ELFFile(file).get_section_by_name(".symtab")
        every = {name: table.get_symbol_by_name(name) or () for name in names}
        return {
            name: symbol["st_value"]
            for name, symbols in every.items()
            for symbol in symbols
            if symbol["st_shndx"] != "SHN_UNDEF"
        }


def test_symbols_are_found_by_their_whole_names_where_they_are_defined(tmp_path: Path) -> None:
    program = compiled(tmp_path, "-rdynamic")
    with program.open("rb") as file:
        found = Elf(file).symbols(_NAMES)
    assert found == symbols_by_pyelftools(program, _NAMES)
    assert found.keys() == {"step", "big_step", "hidden", "main"}
    assert found["step"] != found["big_step"]


def test_a_stripped_file_has_its_dynamic_symbols(tmp_path: Path) -> None:
    program = compiled(tmp_path, "-rdynamic", "-s")
    with program.open("rb") as file:
        elf = Elf(file)
        assert elf.symbols(_NAMES).keys() == {"step", "big_step", "main"}
        assert not elf.names("MPI_Init")


def test_the_build_id_is_what_the_linker_was_given(tmp_path: Path) -> None:
    with compiled(tmp_path, "-Wl,--build-id=0x0123456789abcdef").open("rb") as file:
        assert Elf(file).build_id == "0123456789abcdef"
    with compiled(tmp_path, "-Wl,--build-id=none").open("rb") as file:
        assert Elf(file).build_id == ""


@pytest.mark.parametrize("option", ["-static", "-pie"])
def test_whether_a_loader_brings_in_libraries(tmp_path: Path, option: str) -> None:
    with compiled(tmp_path, option).open("rb") as file:
        elf = Elf(file)
        assert elf.is_dynamic == (option == "-pie")
        assert elf.names("MPI_Init")


def test_whether_a_section_is_compressed(tmp_path: Path) -> None:
    with compiled(tmp_path, "-gz=zlib").open("rb") as file:
        assert Elf(file).is_packed
    with compiled(tmp_path, "-gz=none").open("rb") as file:
        assert not Elf(file).is_packed


def test_where_the_lowest_segment_is_to_be(tmp_path: Path) -> None:
    with compiled(tmp_path, "-no-pie", "-Wl,-Ttext-segment=0x7000000").open("rb") as file:
        assert Elf(file).lowest == 0x7000000


@pytest.mark.parametrize("content", [b"", b"#!/bin/sh\n" * 20, b"\x7fELF\x01\x01" + bytes(100)])
def test_what_is_no_elf_file_of_64_bits_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "other"
    path.write_bytes(content)
    with path.open("rb") as file, pytest.raises(ValueError, match=re.compile("ELF file")):
        Elf(file)


def _look_at_all(path: Path) -> None:
    with path.open("rb") as file:
        elf = Elf(file)
        elf.symbols(_NAMES), elf.names("MPI_Init"), elf.build_id, elf.lowest, elf.is_packed


def test_a_damaged_file_is_a_value_error_or_has_other_values(tmp_path: Path) -> None:
    program = compiled(tmp_path)
    whole, damaged = program.read_bytes(), tmp_path / "damaged"
    sections = int.from_bytes(whole[40:48], "little")
    draw = random.Random(20)
    refused = 0
    for _ in range(500):
        data = bytearray(whole)
        place = draw.choice((draw.randrange(64), draw.randrange(sections, len(whole))))
        data[place] = draw.randrange(256)
        damaged.write_bytes(data)
        try:
            _look_at_all(damaged)
        except ValueError:
            refused += 1
    assert refused > 20


def test_a_file_that_was_cut_off_is_refused(tmp_path: Path) -> None:
    program = compiled(tmp_path)
    for size in (program.stat().st_size - 1, 200, 64, 63, 10, 1):
        os.truncate(program, size)
        with pytest.raises(ValueError, match="too early"):
            _look_at_all(program)
