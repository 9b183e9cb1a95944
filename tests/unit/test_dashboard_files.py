"""The shipped dashboard and configuration: made by its script, by Grafana's linter's rules, in one piece."""

import json
import re
import runpy
from pathlib import Path

import promql_parser
import pytest
import yaml

from harness.sinks.prometheus import LABELS, LAST_SCRAPE_S, LiveMetrics

DASHBOARDS = Path(__file__).parents[2] / "dashboards"
GRAFANA = DASHBOARDS / "grafana"
FILE = GRAFANA / "dashboards" / "agent-latency.json"
BOARD = json.loads(FILE.read_text())
PANELS = [panel for panel in BOARD["panels"] if panel["type"] != "row"]
TARGETS = [(panel, target) for panel in PANELS for target in panel["targets"]]
VARIABLES = {variable["name"]: variable for variable in BOARD["templating"]["list"]}
EXCLUSIONS = yaml.safe_load((FILE.parent / ".lint").read_text())["exclusions"]
UNITS = {"s", "none", "percentunit"}  # of those the linter knows, the ones in use
QUERIES = [variable for variable in VARIABLES.values() if variable["type"] == "query"]


def name(one):
    panel, target = one
    return f"{panel['title']}/{target['refId']}"


def parsed(expr):
    """What Grafana would send, as a tree."""
    expr = expr.replace("$__rate_interval", "1m").replace("$__range", "15m")
    return promql_parser.parse(re.sub(r"\$\w+", "x", expr))


def walk(node, above=()):
    """Every node of a query with those above it."""
    yield node, above
    below = [getattr(node, part, None) for part in ("expr", "lhs", "rhs", "vector_selector", "vs", "param")]
    below += list(getattr(node, "args", None) or [])
    for child in below:
        if child is not None and not isinstance(child, str | int | float):
            yield from walk(child, (*above, node))


def selectors(expr):
    found = [
        (node, above) for node, above in walk(parsed(expr)) if isinstance(node, promql_parser.VectorSelector)
    ]
    assert len(found) == expr.count("{"), "a selector was not walked to"
    return found


def excluded(rule, panel):
    entries = EXCLUSIONS.get(rule, {}).get("entries")
    return rule in EXCLUSIONS and (entries is None or {"panel": panel["title"]} in entries)


def test_it_is_what_its_script_makes():
    assert runpy.run_path(str(DASHBOARDS / "generate.py"))["made"]() == FILE.read_text()


def test_every_exclusion_has_a_reason_and_is_of_a_panel_that_is_there():
    titles = {panel["title"] for panel in PANELS}
    for said in EXCLUSIONS.values():
        assert said["reason"]
        assert {entry["panel"] for entry in said.get("entries", [])} <= titles


# --- the linter's rules (grafana/dashboard-linter, docs/index.md) ------------------------------


def test_template_datasource_rule():
    [variable] = [one for one in VARIABLES.values() if one["type"] == "datasource"]
    assert (variable["name"], variable["label"], variable["query"]) == (
        "datasource",
        "Data source",
        "prometheus",
    )


@pytest.mark.parametrize("variable", QUERIES, ids=lambda variable: variable["name"])
def test_template_label_promql_rule_and_template_on_time_change_reload_rule(variable):
    [(selector, label)] = re.findall(r"^label_values\((.+), (\w+)\)$", variable["query"])
    assert parsed(selector).name == "harness_tasks_in_flight"
    assert label in LABELS
    assert variable["refresh"] == 2
    assert variable["datasource"]["uid"] == "${datasource}"


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel["title"])
def test_panel_rules(panel):
    assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}  # panel-datasource-rule
    assert panel["title"]  # panel-title-description-rule
    assert panel["description"]
    assert panel["targets"]  # panel-no-targets-rule
    assert panel["fieldConfig"]["defaults"]["unit"] in UNITS  # panel-units-rule


@pytest.mark.parametrize("one", TARGETS, ids=name)
def test_target_promql_rule_and_target_rate_interval_rule(one):
    _, target = one
    parsed(target["expr"])
    assert target["datasource"]["uid"] == "${datasource}"
    for function, window in re.findall(r"(\w+)\((?:[^()]|\{[^}]*\})*\[([^\]]+)\]\)", target["expr"]):
        wanted = "$__rate_interval" if function in ("rate", "irate", "increase") else "$__range"
        assert window == wanted


@pytest.mark.parametrize("one", TARGETS, ids=name)
def test_target_counter_agg_rule(one):
    panel, target = one
    for selector, above in selectors(target["expr"]):
        if selector.name.endswith("_total"):
            functions = [node.func.name for node in above if isinstance(node, promql_parser.Call)]
            rated = {"rate", "irate", "increase"} & set(functions)
            assert rated or excluded("target-counter-agg-rule", panel)


def test_uneditable_dashboard():
    assert BOARD["editable"] is False


# --- in one piece ------------------------------------------------------------------------------


@pytest.mark.parametrize("one", TARGETS, ids=name)
def test_queries_ask_for_metrics_and_labels_that_are_there_and_for_one_run(one):
    _, target = one
    served = {family.name for family in LiveMetrics(scenario="s", run="r").collect()} | {
        "harness_tasks_total"
    }
    for selector, _ in selectors(target["expr"]):
        assert selector.name.removesuffix("_bucket") in served
        matched = {matcher.name for matcher in selector.matchers.matchers}
        assert {"scenario", "run", "workload"} <= matched <= {*LABELS, "le"}
    assert set(re.findall(r"\$(\w+)", target["expr"])) <= {*VARIABLES, "__rate_interval", "__range"}


def test_panels_have_their_own_numbers_and_do_not_overlap():
    ids = [panel["id"] for panel in BOARD["panels"]]
    assert len(set(ids)) == len(ids)
    cells = [
        (x, y)
        for at in (panel["gridPos"] for panel in BOARD["panels"])
        for x in range(at["x"], at["x"] + at["w"])
        for y in range(at["y"], at["y"] + at["h"])
    ]
    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) < 24


def test_panels_of_task_time_say_that_they_are_censor_blind():
    blind = {panel["title"] for panel, target in TARGETS if "harness_task_seconds" in target["expr"]}
    assert blind == {panel["title"] for panel in PANELS if "Censor-blind" in panel["description"]}


def test_the_configuration_fits_together():
    compose = yaml.safe_load((DASHBOARDS / "docker-compose.yml").read_text())["services"]
    scrape = yaml.safe_load((DASHBOARDS / "prometheus" / "prometheus.yml").read_text())
    [source] = yaml.safe_load((GRAFANA / "provisioning/datasources/prometheus.yml").read_text())[
        "datasources"
    ]
    [provider] = yaml.safe_load((GRAFANA / "provisioning/dashboards/harness.yml").read_text())["providers"]
    assert "--web.listen-address=127.0.0.1:9090" in compose["prometheus"]["command"]
    assert source["url"] == "http://127.0.0.1:9090"
    assert compose["grafana"]["environment"]["GF_SERVER_HTTP_ADDR"] == "127.0.0.1"
    mounted = dict(volume.split(":")[:2] for one in compose.values() for volume in one["volumes"])
    for place in (place for place in mounted if place.startswith("./")):
        assert (DASHBOARDS / place).exists()
    assert mounted["./grafana/dashboards"] == provider["options"]["path"]
    assert source["jsonData"]["timeInterval"] == scrape["global"]["scrape_interval"]
    assert 2 * int(scrape["global"]["scrape_interval"].removesuffix("s")) < LAST_SCRAPE_S
    [job] = scrape["scrape_configs"]
    [address] = job["static_configs"][0]["targets"]
    assert f"--prometheus-port {address.split(':')[1]}" in (DASHBOARDS / "README.md").read_text()
