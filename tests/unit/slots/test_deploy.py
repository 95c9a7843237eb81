"""Alert rules, runbook and dashboard speak of the same things as the code."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from slots.alarms import Alarms
from slots.metrics import SlotMetrics
from slots.state import History, Kind, Limits
from tests.slot_readings import BEGIN, idle, reading

ROOT = Path(__file__).parents[3]
RULES = (ROOT / "deploy" / "prometheus-alerts.yml").read_text("utf-8")
RUNBOOK = (ROOT / "docs" / "runbook.md").read_text("utf-8")
DASHBOARD = (ROOT / "deploy" / "grafana-slots.json").read_text("utf-8")

ALERTS = re.findall(r"- alert: (\w+)", RULES)
PROBES_OWN = {Kind.FAILOVER}


def exported() -> set[str]:
    """Return the names of every metric that a watch can expose."""
    limits, history, registry = Limits(), History(), CollectorRegistry()
    metrics, alarms = SlotMetrics(registry, limits=limits), Alarms(limits)
    for moment in (0, 100):
        look = reading(idle(), seconds=moment, wal=BEGIN + moment)
        alarms.observe(look, history)
        metrics.poll_succeeded(look, history, alarms.up)
    text = generate_latest(registry).decode()
    return set(re.findall(r"^# TYPE (\w+)", text, re.MULTILINE))


@pytest.mark.parametrize("kind", [kind for kind in Kind if kind not in PROBES_OWN])
def test_every_alarm_has_an_alert(kind: Kind) -> None:
    assert f'walferry_slot_alarm{{alarm="{kind}"}}' in RULES


@pytest.mark.parametrize("alert", ALERTS)
def test_every_alert_has_a_section_in_the_runbook(alert: str) -> None:
    assert f"docs/runbook.md#{alert.lower()}\n" in RULES
    section = RUNBOOK.partition(f"\n## {alert}\n")[2].partition("\n## ")[0]
    assert section.strip().startswith("**Means:**")


def test_the_runbook_has_no_section_without_an_alert() -> None:
    assert re.findall(r"^## (\w+)$", RUNBOOK, re.MULTILINE) == ALERTS


def test_links_inside_the_runbook_lead_somewhere() -> None:
    anchors = {alert.lower() for alert in ALERTS}

    assert set(re.findall(r"\]\(#(\w+)\)", RUNBOOK)) <= anchors


def test_rules_and_dashboard_use_metrics_that_exist() -> None:
    used = set(re.findall(r"\bwalferry_slots?_\w+", RULES + DASHBOARD))

    assert used <= exported()


def test_the_dashboard_shows_every_metric() -> None:
    used = set(re.findall(r"\bwalferry_slots?_\w+", DASHBOARD))

    assert exported() <= used


def test_the_dashboards_panels_do_not_overlap() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in json.loads(DASHBOARD)["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < 24
        taken |= cells


def test_limits_that_the_runbook_names_exist() -> None:
    for name, value in re.findall(r"(?:SLOTS|CDC_ALARMS_)_([A-Z_]+)=(\w+)", RUNBOOK):
        Limits.of({name.lower(): value})
