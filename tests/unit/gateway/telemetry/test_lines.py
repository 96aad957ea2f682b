from __future__ import annotations

import os
import threading

from gateway.telemetry.lines import LineWriter, write_to


def test_lines_come_out_in_order_and_closing_writes_the_rest() -> None:
    out: list[bytes] = []
    writer = LineWriter(out.append, period_s=60.0)
    writer.start()
    for number in range(2000):
        writer.write(b"%d\n" % number)
    writer.close()
    assert b"".join(out) == b"".join(b"%d\n" % number for number in range(2000))
    assert len(out) < 10  # many lines share one call
    assert writer.dropped == 0


def test_a_flush_does_not_wait_for_the_period() -> None:
    came = threading.Event()
    writer = LineWriter(lambda _: came.set(), period_s=60.0)
    writer.start()
    writer.write(b"x\n")
    writer.flush()
    assert came.wait(10.0)
    writer.close()


def test_a_stuck_reader_costs_lines_and_never_the_caller() -> None:
    stuck, release = threading.Event(), threading.Event()

    def sink(_: bytes) -> None:
        stuck.set()
        release.wait(30.0)

    writer = LineWriter(sink, limit=10, period_s=0.01)
    writer.start()
    writer.write(b"first\n")
    assert stuck.wait(10.0)
    for _ in range(25):
        writer.write(b"x\n")
    writer.close(timeout_s=0.05)
    assert writer.dropped == 15
    release.set()


def test_a_reader_that_has_gone_is_counted() -> None:
    def sink(_: bytes) -> None:
        raise BrokenPipeError

    writer = LineWriter(sink)
    writer.start()
    writer.write(b"x\n")
    writer.write(b"y\n")
    writer.close()
    assert writer.dropped == 2


def test_a_writer_that_was_never_started_closes() -> None:
    writer = LineWriter(lambda _: None)
    writer.close()
    assert writer.dropped == 0


def test_short_writes_are_continued() -> None:
    reader, descriptor = os.pipe()
    data = os.urandom(300_000)  # more than a pipe holds
    writer = threading.Thread(target=lambda: (write_to(descriptor)(data), os.close(descriptor)))
    writer.start()
    with os.fdopen(reader, "rb") as file:
        assert file.read() == data
    writer.join()
