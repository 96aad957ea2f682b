import pytest

from backends.probing.schedule import LastRun, Reason, Schedule, due

PACE = Schedule(interval_s=3600, quiet_exchanges=2, retry_s=60)
DONE, CUT = LastRun(1000.0, "0.32.0", complete=True), LastRun(1000.0, "0.32.0", complete=False)


@pytest.mark.parametrize(
    ("last", "age", "version", "in_flight", "want"),
    [
        (None, 0, "0.32.0", 100, Reason.REGISTERED),
        (DONE, 10, "0.32.0", 0, None),
        (DONE, 10, "0.33.0", 0, None),
        (DONE, 60, "0.33.0", 100, Reason.VERSION),
        (DONE, 600, "", 0, None),
        (CUT, 59, "0.32.0", 0, None),
        (CUT, 60, "0.32.0", 0, Reason.REGISTERED),
        (DONE, 3600, "0.32.0", 2, Reason.SCHEDULE),
        (DONE, 3600, "0.32.0", 3, None),
        (DONE, 7199, "0.32.0", 3, None),
        (DONE, 7200, "0.32.0", 3, Reason.SCHEDULE),
    ],
)
def test_due(last, age, version, in_flight, want):
    assert due(PACE, last, now_s=1000.0 + age, version=version, in_flight=in_flight) is want
