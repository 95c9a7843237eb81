"""The alert rules, run by promtool over series recorded from real servers."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from prometheus_client import CollectorRegistry

from slots import catalog
from slots.metrics import SlotMetrics
from slots.state import Kind, Limits
from slots.watch import Watch
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from slots.alarms import Alarm
    from tests.slot_stage import Stage

pytestmark = pytest.mark.postgres

RULES = Path(__file__).parents[3] / "deploy" / "prometheus-alerts.yml"
INSTANCE = "watch:9187"
ALERTS = {
    Kind.LOST: "WalferrySlotLost",
    Kind.UNRESERVED: "WalferrySlotUnreserved",
    Kind.AHEAD: "WalferrySlotAhead",
    Kind.RETAINED: "WalferrySlotRetained",
    Kind.LAG: "WalferrySlotLag",
    Kind.BUDGET: "WalferrySlotBudget",
    Kind.TIME_TO_LOSS: "WalferrySlotTimeToLoss",
    Kind.TRANSACTION_GAP: "WalferrySlotTransactionGap",
    Kind.TRANSACTION_AGE: "WalferrySlotTransactionAge",
    Kind.INACTIVE: "WalferrySlotInactive",
    Kind.NO_PROGRESS: "WalferrySlotNoProgress",
    Kind.XMIN_AGE: "WalferrySlotXminAge",
    Kind.REPLACED: "WalferrySlotReplaced",
    Kind.MISSING: "WalferrySlotMissing",
    Kind.SLOT_COUNT: "WalferrySlotCount",
    Kind.NO_WAL_LIMIT: "WalferryNoWalLimit",
    Kind.READING_FAILED: "WalferryReadingFailed",
}


@pytest.fixture(scope="module")
def promtool() -> str:
    found = shutil.which("promtool")
    if found is None:
        pytest.fail("promtool is missing: apt-get install prometheus", pytrace=False)
    return found


class Recorder:
    """A watch whose metrics are kept poll by poll, as Prometheus would scrape them."""

    def __init__(self, stage: Stage, **limits: str) -> None:
        self._registry = CollectorRegistry()
        chosen = Limits.of(limits)
        metrics = SlotMetrics(self._registry, limits=chosen)
        self._watch = Watch(stage.target, limits=chosen, metrics=metrics)
        self.polls: list[dict[str, float]] = []
        self.alarms: list[tuple[Alarm, ...]] = []

    async def look(self) -> set[Kind]:
        view = await self._watch.poll()
        self.alarms.append(view.alarms)
        self.polls.append(
            {
                _series(sample.name, sample.labels): sample.value
                for family in self._registry.collect()
                for sample in family.samples
            }
        )
        return {alarm.kind for alarm in view.alarms}

    async def close(self) -> None:
        await self._watch.close()

    def input_series(self) -> list[dict[str, str]]:
        names = sorted({name for poll in self.polls for name in poll})
        return [
            {
                "series": name,
                "values": " ".join(_value(poll.get(name)) for poll in self.polls),
            }
            for name in names
        ]

    def expectations(self) -> list[dict[str, Any]]:
        """Return what has to fire after each poll: what the watch says is up."""
        return [
            {
                "expr": 'ALERTS{alertstate="firing"}',
                "eval_time": f"{number}m",
                "exp_samples": [
                    {"labels": _alert(alarm), "value": 1} for alarm in alarms
                ],
            }
            for number, alarms in enumerate(self.alarms)
        ]


def _series(name: str, labels: dict[str, str]) -> str:
    pairs = sorted((labels | {"instance": INSTANCE}).items())
    return name + "{" + ",".join(f'{key}="{value}"' for key, value in pairs) + "}"


def _value(value: float | None) -> str:
    # A series that is not exposed any more goes stale at once.
    return "stale" if value is None else repr(value)


def _alert(alarm: Alarm) -> str:
    labels = {
        "alertname": ALERTS[alarm.kind],
        "alertstate": "firing",
        "severity": alarm.level.word,
        "alarm": alarm.kind.value,
        "level": alarm.level.word,
        "slot_name": alarm.slot_name,
        "slot_type": alarm.slot_type,
        "database": alarm.database,
    }
    return _series("ALERTS", {key: value for key, value in labels.items() if value})


def run_promtool(promtool: str, folder: Path, tests: list[dict[str, Any]]) -> None:
    file = folder / "tests.yml"
    document = {
        "rule_files": [str(RULES)],
        "evaluation_interval": "1m",
        "tests": [{"interval": "1m", **one} for one in tests],
    }
    file.write_text(json.dumps(document), encoding="utf-8")  # YAML takes JSON
    done = subprocess.run(
        [promtool, "test", "rules", str(file)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


async def test_alerts_fire_for_what_is_up_in_a_real_run_and_for_nothing_else(
    stage_of: Callable[..., Awaitable[Stage]], promtool: str, tmp_path: Path
) -> None:
    """From well, through every trouble that can be staged at once, to an outage."""
    stage = await stage_of(
        "18", max_slot_wal_keep_size="24MB", max_replication_slots="5"
    )
    recorder = Recorder(
        stage,
        lag="4MB:8MB",
        retained="5MB",
        transaction_gap="4MB",
        transaction_age="0.1s",
        inactive="0.1s",
        no_progress="0.1s",
        xmin_age="1",
    )
    seen = await recorder.look()
    assert seen == set()
    for name in ("orders", "billing", "old", "spare"):
        await catalog.create_slot(stage.admin, name)
    await stage.consumer("orders")
    await stage.begin_write()
    for _ in range(3):
        await stage.write(6)
        await stage.confirm_all("billing")
        seen |= await recorder.look()

    async def is_stuck() -> bool:
        return Kind.NO_PROGRESS in await recorder.look()

    await eventually(is_stuck)
    seen.add(Kind.NO_PROGRESS)
    await catalog.drop_slot(stage.admin, "spare")
    seen |= await recorder.look()
    await catalog.create_slot(stage.admin, "spare", plugin=None)
    await stage.write(9)
    seen |= await recorder.look()
    await stage.admin.execute("CHECKPOINT")
    seen |= await recorder.look()
    await asyncio.to_thread(stage.server.stop, "immediate")
    seen |= await recorder.look()
    await asyncio.to_thread(stage.server.start)
    seen |= await recorder.look()
    await recorder.close()

    assert seen >= {
        Kind.LOST,
        Kind.UNRESERVED,
        Kind.RETAINED,
        Kind.LAG,
        Kind.BUDGET,
        Kind.TRANSACTION_GAP,
        Kind.TRANSACTION_AGE,
        Kind.INACTIVE,
        Kind.NO_PROGRESS,
        Kind.REPLACED,
        Kind.MISSING,
        Kind.SLOT_COUNT,
        Kind.READING_FAILED,
    }
    await asyncio.to_thread(
        run_promtool,
        promtool,
        tmp_path,
        [
            {
                "input_series": recorder.input_series(),
                "promql_expr_test": recorder.expectations(),
            }
        ],
    )


def test_an_alert_says_which_slot_where_how_much_and_what_to_do(
    promtool: str, tmp_path: Path
) -> None:
    labels = {"slot_name": "orders", "slot_type": "logical", "database": "shop"}
    alarm = labels | {"alarm": "lag", "level": "warning"}
    alert = {
        "exp_labels": alarm | {"severity": "warning", "instance": INSTANCE},
        "exp_annotations": {
            "summary": "Slot orders has a consumer that is far behind",
            "description": "Slot orders (logical, database shop) at watch:9187 has a"
            " consumer that is far behind (2GiB). slots why orders names the cause.",
            "runbook": "docs/runbook.md#walferryslotlag",
        },
    }
    series = {
        _series("walferry_slot_alarm", alarm): "1x5",
        _series("walferry_slot_lag_bytes", labels): f"{2 << 30}x5",
        _series("walferry_slots_poll_success", {}): "1x5",
    }

    run_promtool(
        promtool,
        tmp_path,
        [
            {
                "input_series": [
                    {"series": name, "values": values}
                    for name, values in series.items()
                ],
                "alert_rule_test": [
                    {
                        "eval_time": "2m",
                        "alertname": "WalferrySlotLag",
                        "exp_alerts": [alert],
                    }
                ],
            }
        ],
    )


def test_a_watch_that_is_away_is_an_alert_of_its_own(
    promtool: str, tmp_path: Path
) -> None:
    firing = 'ALERTS{alertname="WalferrySlotsNotWatched",alertstate="firing"}'
    expected = firing[:-1] + ',severity="critical"}'

    run_promtool(
        promtool,
        tmp_path,
        [
            {
                "input_series": [
                    {
                        "series": _series("walferry_slots_poll_success", {}),
                        "values": "1 1 stale _x20",
                    }
                ],
                "promql_expr_test": [
                    {"expr": firing, "eval_time": "6m", "exp_samples": []},
                    {
                        "expr": firing,
                        "eval_time": "7m",
                        "exp_samples": [{"labels": expected, "value": 1}],
                    },
                ],
            }
        ],
    )
