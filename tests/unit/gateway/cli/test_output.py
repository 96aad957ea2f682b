from __future__ import annotations

import pytest

from gateway.cli.output import print_table


def test_columns_are_aligned_and_numbers_stand_right(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("NAME", "READY"), (("a", 1), ("longer", 12)))
    assert capsys.readouterr().out == "NAME    READY\na           1\nlonger     12\n"


def test_an_empty_table_has_its_head(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("NAME", "READY"), ())
    assert capsys.readouterr().out == "NAME  READY\n"
