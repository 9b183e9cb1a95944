"""Makes grafana/dashboards/agent-latency.json: run it after a change here, a test holds both alike.

    python dashboards/generate.py

Every query is of the one run that is chosen, and of what its `summary.json` counts: phase `measure`.
"""

from pathlib import Path

from grafana_foundation_sdk.builders import (
    common,
    dashboard,
    prometheus,
    stat,
    timeseries,
    xychart,
)
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import common as kinds
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models.prometheus import PromQueryFormat
from grafana_foundation_sdk.models.xychart import SeriesMapping, XYShowMode

FILE = Path(__file__).parent / "grafana" / "dashboards" / "agent-latency.json"
DATASOURCE = models.DataSourceRef(type_val="prometheus", uid="${datasource}")
RUN = 'scenario="$scenario", run="$run", workload="$workload"'
MEASURED = f'{RUN}, phase="measure"'
LAST_MINUTE = "1m"
"""Smallest step of the panels that look at the last moments: `$__rate_interval` is then a little longer."""

TASK, TTFT, TPOT, GAP = (
    f"harness_{name}_seconds" for name in ("task", "call_ttft", "call_tpot", "event_gap")
)
CENSOR_BLIND = (
    "Censor-blind: only completed tasks are counted here, so where tasks failed, timed out or were cut this"
    " is too short. summary.json, which knows of them, is the authority."
)
FEW = "A bucket is 9.4 % wide at most, and so is the error. Where values are few, summary.json gives none."


def quantile(q: float, metric: str, *, only: str = "", by: str = "backend, le") -> str:
    """Query a quantile of all values so far."""
    return f"histogram_quantile({q}, sum by ({by}) ({metric}_bucket{{{MEASURED}{only}}}))"


def recent(q: float, metric: str) -> str:
    """Query a quantile of the last moments' values."""
    rate = f"rate({metric}_bucket{{{MEASURED}}}[$__rate_interval])"
    return f"histogram_quantile({q}, sum by (backend, le) ({rate}))"


def last(metric: str, *, only: str = "") -> str:
    """Query the last value in the range that is shown, also when the run is over."""
    return f"last_over_time({metric}{{{MEASURED}{only}}}[$__range])"


SPEED_UP = (
    quantile(0.5, TASK, only=', backend="$baseline"', by="le")
    + " / on () group_right () "
    + quantile(0.5, TASK, only=', backend!="$baseline"')
)
DONE_BY = last(f"{TASK}_bucket", only=', le!~"0.0|[+]Inf"')
CURVE = (
    f"sum by (backend, le) ({DONE_BY})"
    f" / on (backend) group_left () sum by (backend) ({last('harness_tasks_total')}) > 0"
)


def query(expr: str, legend: str) -> prometheus.Dataquery:
    """Ask over the whole range."""
    return prometheus.Dataquery().datasource(DATASOURCE).expr(expr).range().legend_format(legend)


def legend() -> common.VizLegendOptions:
    """Name the lines below the panel."""
    return (
        common.VizLegendOptions()
        .display_mode(kinds.LegendDisplayMode.TABLE)
        .placement(kinds.LegendPlacement.BOTTOM)
        .show_legend(True)
    )


def lines(title: str, about: str, unit: str, queries: dict[str, str]) -> timeseries.Panel:
    """Draw lines over time; `queries`: what stands after the legend's {{backend}}, and its query."""
    panel = (
        timeseries.Panel()
        .title(title)
        .description(about)
        .datasource(DATASOURCE)
        .unit(unit)
        .min(0)
        .line_width(2)
        .legend(legend().calcs(["lastNotNull"]))
        .span(8)
        .height(9)
    )
    for refid, (word, expr) in zip("ABC", queries.items(), strict=False):
        panel = panel.with_target(query(expr, f"{{{{backend}}}} {word}").ref_id(refid))
    return panel


def number(title: str, about: str, unit: str, expr: str) -> stat.Panel:
    """Show the last value of each backend."""
    return (
        stat.Panel()
        .title(title)
        .description(about)
        .datasource(DATASOURCE)
        .unit(unit)
        .reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]).values(False).fields(""))
        .graph_mode(kinds.BigValueGraphMode.NONE)
        .color_mode(kinds.BigValueColorMode.NONE)
        .text_mode(kinds.BigValueTextMode.VALUE_AND_NAME)
        .span(8)
        .height(4)
        .with_target(query(expr, "{{backend}}").ref_id("A"))
    )


def curve() -> xychart.Panel:
    """Draw the share of ended tasks that were done by t, over a logarithmic t."""
    changes = [
        ("convertFieldType", {"conversions": [{"targetField": "le", "destinationType": "number"}]}),
        ("organize", {"excludeByName": {"Time": True}, "renameByName": {"Value": "done"}}),
        ("sortBy", {"sort": [{"field": "le"}]}),
        ("partitionByValues", {"fields": ["backend"], "naming": {"asLabels": True}}),
    ]
    panel = (
        xychart.Panel()
        .title("Share of ended tasks that were done by t")
        .description(
            f"Completed tasks of at most t, of all that have ended; t in seconds. {CENSOR_BLIND}"
            " Where all tasks completed it is the completion curve."
        )
        .datasource(DATASOURCE)
        .unit("percentunit")
        .min(0)
        .max(1)
        .mapping(SeriesMapping.AUTO)
        .series(
            [
                xychart.XYSeriesConfig().x(
                    xychart.XychartXYSeriesConfigX().matcher(
                        xychart.MatcherConfig().id("byName").options("le")
                    )
                )
            ]
        )
        .show(XYShowMode.LINES)
        .line_width(2)
        .legend(legend())
        .override_by_name(
            "le",
            [
                models.DynamicConfigValue("unit", "s"),
                models.DynamicConfigValue("custom.scaleDistribution", {"type": "log", "log": 10}),
            ],
        )
        .span(8)
        .height(9)
        .with_target(query(CURVE, "{{backend}}").instant().format(PromQueryFormat.TABLE).ref_id("A"))
    )
    for kind, options in changes:
        panel = panel.with_transformation(models.DataTransformerConfig(id_val=kind, options=options))
    return panel


def rows() -> dict[str, list]:
    """Give the panels under each heading, in the order of their ids."""
    so_far = {f"p{round(q * 100)}": q for q in (0.5, 0.95)}
    return {
        "How much sooner, so far": [
            number(
                "Speed-up of the median task",
                "Median task time on the baseline / on each other backend, of all tasks so far: `ratio_p50`"
                f" of summary.json, within two buckets (20 %). {CENSOR_BLIND}",
                "none",
                SPEED_UP,
            ).decimals(2),
            number(
                "Median task time", f"Of all tasks so far. {CENSOR_BLIND} {FEW}", "s", quantile(0.5, TASK)
            ),
            number(
                "Decode speed, tokens/s",
                f"1 / median time per output token of the calls so far. {FEW}",
                "none",
                f"1 / {quantile(0.5, TPOT)}",
            ).decimals(1),
            lines(
                "Task time",
                f"Of all tasks so far. {CENSOR_BLIND} {FEW}",
                "s",
                {word: quantile(q, TASK) for word, q in so_far.items()},
            ),
            curve(),
            lines(
                "Tasks by outcome",
                "Tasks that have ended so far, warm-up left out.",
                "none",
                {"{{outcome}}": f"sum by (backend, outcome) (harness_tasks_total{{{MEASURED}}})"},
            ),
        ],
        "Where the time goes, so far": [
            lines(
                "Time to first token",
                f"Sent to first output event, of calls that ended well. {FEW}",
                "s",
                {word: quantile(q, TTFT) for word, q in so_far.items()},
            ),
            lines(
                "Time per output token",
                f"Of calls that ended well and told their tokens. {FEW}",
                "s",
                {word: quantile(q, TPOT) for word, q in so_far.items()},
            ),
            lines(
                "Gap between output events",
                "An event may hold several tokens; events that came in one read have a gap of nought. Gaps"
                f" below 64 us are not told apart. {FEW}",
                "s",
                {f"p{round(q * 100)}": quantile(q, GAP) for q in (0.5, 0.95, 0.99)},
            ),
        ],
        "Does it hold: the last moments": [
            lines(
                "Task time, last moments",
                f"Of tasks that ended in the last minute or so; a hole where none did. {CENSOR_BLIND} {FEW}",
                "s",
                {word: recent(q, TASK) for word, q in so_far.items()},
            ).interval(LAST_MINUTE),
            lines(
                "Decode speed, last moments, tokens/s",
                f"1 / median time per output token of calls that ended in the last minute or so. {FEW}",
                "none",
                {"p50": f"1 / {recent(0.5, TPOT)}"},
            ).interval(LAST_MINUTE),
            lines(
                "Tasks in flight",
                "Begun and not ended, warm-up too.",
                "none",
                {"": f"sum by (backend) (harness_tasks_in_flight{{{RUN}}})"},
            ),
        ],
    }


def variable(name: str, labels: str, about: str) -> dashboard.QueryVariable:
    """Offer the values of a label that the runs in the shown range have."""
    return (
        dashboard.QueryVariable(name)
        .label(name.capitalize())
        .description(about)
        .datasource(DATASOURCE)
        .query(f"label_values(harness_tasks_in_flight{labels})")
        .refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(models.VariableSort.ALPHABETICAL_ASC)
        .multi(False)
        .include_all(False)
    )


def made() -> str:
    """Make the dashboard's JSON."""
    board = (
        dashboard.Dashboard("Agent latency: standard against Ultrafast")
        .uid("agent-latency")
        .description(
            "How much sooner whole agent tasks are done, live, from `--prometheus-port`. What a run says in"
            " the end stands in its summary.json; there, intervals and censored tasks are taken into account."
        )
        .tags(["harness"])
        .readonly()
        .time("now-15m", "now")
        .refresh("5s")
        .tooltip(models.DashboardCursorSync.CROSSHAIR)
        .with_variable(dashboard.DatasourceVariable("datasource").label("Data source").type("prometheus"))
        .with_variable(variable("scenario", ", scenario", "Name of the scenario."))
        .with_variable(variable("run", '{scenario="$scenario"}, run', "`run_id` of run.json."))
        .with_variable(variable("workload", '{run="$run"}, workload', "Name of the workload."))
        .with_variable(
            variable(
                "baseline", '{run="$run"}, backend', "The backend that others are held against."
            ).current(models.VariableOption(text="standard", value="standard"))
        )
    )
    number_of_panel = 0
    for heading, panels in rows().items():
        board = board.with_row(dashboard.Row(heading).id(number_of_panel := number_of_panel + 1))
        for panel in panels:
            board = board.with_panel(panel.id(number_of_panel := number_of_panel + 1))
    return JSONEncoder(sort_keys=True, indent=2).encode(board.build()) + "\n"


if __name__ == "__main__":
    FILE.write_text(made())
