"""Own leases at once, others through late and partial reports."""

from __future__ import annotations

from dataclasses import replace

import pytest

from backends.contracts import Load
from policies.cost_model.model import CostModel
from policies.inflight import PEER_STALE_S, PeerLoad, PeerTable
from policies.others import Others
from policies.routing.columns import FleetColumns
from tests.unit.policies.routing.fleet import of_replicas, snapshot


def test_what_we_sent_ourselves_is_not_somebody_elses() -> None:
    others = Others.nothing(1)
    load = Load(running=10, waiting=4, waiting_uncached_tokens=9000, kv_used=0.5, kv_capacity_tokens=100_000, at_s=5.0)
    others.hear(0, load, own_exchanges=6, own_prefill_tokens=4000, own_context_tokens=20_000)
    assert (others.exchanges[0], others.prefill_tokens[0], others.context_tokens[0]) == (8, 5000, 30_000)


def test_an_engine_that_counts_requests_only_is_taken_at_typical_length() -> None:
    others = Others.nothing(1)
    others.hear(0, Load(running=6, waiting=2, at_s=5.0), own_exchanges=0, own_prefill_tokens=0, own_context_tokens=0)
    assert others.prefill_tokens[0] == 4000


def test_nothing_of_others_when_all_is_ours() -> None:
    others = Others.nothing(1)
    load = Load(running=1, waiting_uncached_tokens=100, kv_used=0.5, kv_capacity_tokens=1000, at_s=5.0)
    others.hear(0, load, own_exchanges=3, own_prefill_tokens=500, own_context_tokens=5)
    assert (others.exchanges[0], others.prefill_tokens[0], others.context_tokens[0]) == (0, 0, 0)


def test_an_old_report_fades() -> None:
    columns = FleetColumns(CostModel())
    fleet = snapshot({"a": 1})
    busy = replace(fleet.replicas[0], load=Load(running=40, waiting_uncached_tokens=8000, at_s=100.0))
    columns.follow(of_replicas((busy,), version=2, table=fleet.table), 100.0)
    fresh, old, dead = (columns.in_flight(now)[1, 0] for now in (100.0, 103.0, 160.0))
    assert fresh == 8000
    assert old == pytest.approx(4000)
    assert dead < 1


def test_own_counters_count_at_once() -> None:
    columns = FleetColumns(CostModel())
    fleet = snapshot({"a": 2})
    columns.follow(fleet, 1.0)
    fleet.table.prefill_tokens[1] += 700
    fleet.table.exchanges[1] += 1
    assert columns.in_flight(1.0)[:2, 1].tolist() == [1, 700]


def test_the_better_informed_of_two_sources_counts() -> None:
    peers = PeerTable()
    columns = FleetColumns(CostModel(), peers)
    fleet = snapshot({"a": 2})
    loads = tuple(replace(r, load=Load(running=4, waiting_uncached_tokens=1000, at_s=9.0)) for r in fleet.replicas)
    columns.follow(of_replicas(loads, version=2, table=fleet.table), 9.0)
    peers.update("other", 1, {"a/1": PeerLoad(9, 5000, 20_000), "gone/0": PeerLoad(1, 1, 1)}, 9.0)
    assert columns.in_flight(9.0)[1].tolist() == [1000, 5000]
    peers.forget_stale(9.0 + PEER_STALE_S + 1)
    assert columns.in_flight(9.0)[1].tolist() == [1000, 1000]


def test_peers_add_up_and_a_late_message_changes_nothing() -> None:
    peers = PeerTable()
    assert peers.update("x", 5, {"a/0": PeerLoad(1, 100, 1000)}, 0.0)
    assert peers.update("y", 1, {"a/0": PeerLoad(2, 200, 2000)}, 0.0)
    assert not peers.update("x", 5, {"a/0": PeerLoad(7, 700, 7000)}, 0.1)
    assert not peers.update("x", 4, {}, 0.1)
    assert peers.totals() == {"a/0": PeerLoad(3, 300, 3000)}
    assert peers.update("x", 0, {}, 0.2), "a peer that restarts counts from nothing"
    assert peers.totals() == {"a/0": PeerLoad(2, 200, 2000)}
