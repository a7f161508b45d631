"""Reading lines of GDB's machine interface, whole ones and broken ones."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crdebug.mi.records import (
    Async,
    BadRecord,
    Garbage,
    MiList,
    MiTuple,
    Prompt,
    Result,
    Stream,
    parse,
    quote,
)

pytestmark = pytest.mark.unit

STOPPED = (
    b'*stopped,reason="breakpoint-hit",disp="keep",bkptno="1",frame={addr="0x0000555555555171",'
    b'func="main",args=[{name="argc",value="1"},{name="argv",value="0x7ffe"}],file="a.c",'
    b'fullname="/tmp/a.c",line="11",arch="i386:x86-64"},thread-id="1",stopped-threads="all",core="0"\n'
)


def test_a_result_has_token_kind_and_payload() -> None:
    assert parse(b'12^error,msg="No symbol \\"x\\" in current context."\n') == Result(
        12, "error", MiTuple((("msg", 'No symbol "x" in current context.'),))
    )


@pytest.mark.parametrize("kind", ["done", "running", "connected", "error", "exit"])
def test_every_kind_of_result(kind: str) -> None:
    assert parse(f"7^{kind}".encode()) == Result(7, kind)


def test_a_result_without_a_token() -> None:
    assert parse(b"^done\n") == Result(None, "done")


@pytest.mark.parametrize(("mark", "kind"), [("*", "exec"), ("=", "notify"), ("+", "status")])
def test_async_records_are_distinguished(mark: str, kind: str) -> None:
    record = parse(f'{mark}download,section=".text"'.encode())
    assert record == Async(kind, "download", MiTuple((("section", ".text"),)))  # type: ignore[arg-type]


def test_nested_values() -> None:
    record = parse(STOPPED)
    assert isinstance(record, Async)
    frame = record.payload.tuple("frame")
    assert frame.number("addr", base=0) == 0x555555555171
    assert [each.text("name") for each in frame.list("args").tuples()] == ["argc", "argv"]


def test_a_list_of_results_loses_its_names() -> None:
    record = parse(b'1^done,stack=[frame={level="0"},frame={level="1"}]')
    assert isinstance(record, Result)
    assert [each.number("level") for each in record.payload.list("stack").tuples()] == [0, 1]


def test_the_commands_of_a_breakpoint() -> None:
    record = parse(b'=breakpoint-modified,bkpt={number="1",script={"silent","print \\"}{\\""}}')
    assert isinstance(record, Async)
    assert record.payload.tuple("bkpt").list("script").texts() == ("silent", 'print "}{"')


def test_a_name_that_gdb_repeats_holds_all_values() -> None:
    record = parse(b'=x,thread-ids={thread-id="1",thread-id="2"}')
    assert isinstance(record, Async)
    assert record.payload.tuple("thread-ids").list("thread-id").texts() == ("1", "2")


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (b'~"a\\tb\\n"', "a\tb\n"),
        (b'~"\\303\\251"', "é"),
        ('~"é"'.encode(), "é"),
        (b'~"say \\"x\\" \\\\ \\\'"', 'say "x" \\ \''),
        (b'~""', ""),
    ],
)
def test_stream_text(line: bytes, text: str) -> None:
    assert parse(line) == Stream("console", text)


def test_bytes_that_are_not_utf8_are_shown() -> None:
    assert parse(b'=x,a="\\377"') == Async("notify", "x", MiTuple((("a", "\\377"),)))
    assert parse(b"\xff") == Garbage("\\xff")


@pytest.mark.timeout(20)
@pytest.mark.parametrize("piece", ["y", "\\t", "\\303\\251"])
@pytest.mark.parametrize("end", ["", "\\n"])
def test_a_long_text_takes_no_longer_than_its_length(piece: str, end: str) -> None:
    record = parse(f'~"{piece * 500_000}{end}"'.encode())
    assert isinstance(record, Stream)
    assert len(record.text) == 500_000 + len(end) // 2


def test_streams_are_distinguished() -> None:
    assert parse(b'&"warning"') == Stream("log", "warning")
    assert parse(b'@"output"') == Stream("target", "output")


@pytest.mark.parametrize("line", [b"(gdb) \n", b"(gdb)\r\n", b"(gdb)"])
def test_the_prompt(line: bytes) -> None:
    assert parse(line) == Prompt()


@pytest.mark.parametrize(
    "line",
    [
        b"hello, world",
        b"",
        b"~no quotes",
        b'~"unclosed',
        b'~"unclosed\\"',
        b'*stopped,frame={addr="0x1"',
        b'=x,list=["1",',
        b"*stopped,=",
        b'=x,other={"silent"}',
        b'=x,a="1"]',
        b'=x,a=["1"}',
        b"(gdb) x",
    ],
)
def test_what_is_no_record_is_garbage(line: bytes) -> None:
    assert parse(line) == Garbage(line.decode())


def test_a_broken_result_keeps_its_token() -> None:
    assert parse(b"31^done,value=[") == Garbage("31^done,value=[", 31)


@pytest.mark.timeout(20)
def test_a_record_cut_anywhere_is_garbage_or_a_shorter_record() -> None:
    for end in range(len(STOPPED) - 1):
        assert isinstance(parse(STOPPED[:end]), Garbage | Async)


@pytest.mark.timeout(60)
@given(st.binary() | st.text(string.digits + '^*=+~&@"{}[],\\abc \n').map(str.encode))
def test_no_line_makes_it_raise_or_hang(line: bytes) -> None:
    parse(line)


@given(st.text().filter(lambda text: "\0" not in text))
def test_what_is_quoted_is_read_back(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        return
    record = parse(b"~" + quote(text).encode())
    assert record == Stream("console", text)


def test_deep_nesting_is_garbage_not_a_crash() -> None:
    depth = 5000
    assert isinstance(parse(b"=x,a=" + b"[" * depth + b"]" * depth), Garbage | Async)


class TestAccess:
    payload = MiTuple((("n", "12"), ("s", "x"), ("t", MiTuple()), ("l", MiList(("a", MiTuple())))))

    def test_what_is_there(self) -> None:
        assert self.payload.number("n") == 12
        assert self.payload.text("s") == "x"
        assert "t" in self.payload
        assert "u" not in self.payload
        assert len(self.payload.list("l")) == 2
        assert next(iter(self.payload.list("l"))) == "a"

    def test_an_empty_tuple_is_an_empty_list_too(self) -> None:
        assert self.payload.list("t") == MiList()

    def test_defaults(self) -> None:
        assert self.payload.text("u", "") == ""
        assert self.payload.number("u", 3) == 3

    @pytest.mark.parametrize("name", ["t", "u"])
    def test_no_text(self, name: str) -> None:
        with pytest.raises(BadRecord, match=f"no text '{name}' in \\(n, s, t, l\\)"):
            self.payload.text(name)

    def test_no_number(self) -> None:
        with pytest.raises(BadRecord, match="'s' is not a number: 'x'"):
            self.payload.number("s")

    def test_no_tuple_and_no_list(self) -> None:
        with pytest.raises(BadRecord, match="no tuple 'n'"):
            self.payload.tuple("n")
        with pytest.raises(BadRecord, match="no list 'n'"):
            self.payload.list("n")

    def test_mixed_lists(self) -> None:
        with pytest.raises(BadRecord, match="other than strings"):
            self.payload.list("l").texts()
        with pytest.raises(BadRecord, match="other than tuples"):
            self.payload.list("l").tuples()
