"""Sessions and their homes."""

from __future__ import annotations

from policies.affinity import AffinityTable, session_key


def test_the_most_trusted_hint_makes_the_key() -> None:
    hints = {"user": "u", "prompt_cache_key": "k", "session_id": None}
    assert session_key("t", hints) == session_key("t", {"prompt_cache_key": "k"})
    assert session_key("t", {"user": "k"}) != session_key("t", {"prompt_cache_key": "k"})
    assert session_key("t", {}) == session_key("t", {"user": ""}) == ""


def test_tenants_do_not_meet() -> None:
    assert session_key("a", {"user": "u"}) != session_key("b", {"user": "u"})


def test_a_session_has_the_home_that_served_it_last() -> None:
    table = AffinityTable()
    assert table.home("s", 0.0) == ""
    table.served("s", "a/0", 0.0)
    table.served("s", "a/1", 1.0)
    table.served("", "a/2", 1.0)
    assert table.home("s", 2.0) == "a/1"
    assert len(table) == 1


def test_a_silent_session_is_forgotten() -> None:
    table = AffinityTable(ttl_s=10.0)
    table.served("s", "a/0", 0.0)
    assert table.home("s", 10.0) == "a/0"
    assert table.home("s", 10.1) == ""
    assert len(table) == 0


def test_the_longest_silent_makes_room() -> None:
    table = AffinityTable(capacity=2)
    table.served("x", "a/0", 0.0)
    table.served("y", "a/1", 1.0)
    table.served("x", "a/0", 2.0)
    table.served("z", "a/2", 3.0)
    assert [table.home(session, 4.0) for session in ("x", "y", "z")] == ["a/0", "", "a/2"]


def test_a_stored_response_leads_to_the_sessions_home() -> None:
    table = AffinityTable()
    table.served("s", "a/0", 0.0)
    table.alias("s", "resp_1", 1.0)
    table.alias("nobody", "resp_2", 1.0)
    assert (table.home("resp_1", 2.0), table.home("resp_2", 2.0)) == ("a/0", "")
