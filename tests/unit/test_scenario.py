"""A good scenario becomes frozen values; what the command line changes in them."""

import pytest
from pydantic import ValidationError

from harness.errors import ScenarioError
from harness.scenario import (
    ClosedLoad,
    OpenLoad,
    load_scenario,
    with_overrides,
)
from harness.scenario_backend import Backend, TimeLimits, is_loopback
from tests.scenario_text import GOOD, KINDS, PROFILES, changed, parsed

FAST = 'simulate = "gpt-5.6-sol-ultrafast"'


def test_a_scenario_is_read_with_its_defaults():
    scenario = parsed()
    assert (scenario.schema_, scenario.seed, scenario.cache_salt) == (1, 7, "on")
    assert list(scenario.backends) == ["standard", "fast"]
    assert scenario.backends["fast"].model == "gpt-5.6-sol"
    assert scenario.backends["fast"].limits == TimeLimits(
        connect_s=10, first_output_s=120, stall_s=60, total_s=600
    )
    assert scenario.load == ClosedLoad(kind="closed", users=24, tasks=120)
    assert (scenario.load.drain_s, scenario.load.ramp_s, scenario.load.pairing) == (30, 0, "parallel")
    assert scenario.compare.baseline == "standard"
    assert scenario.spend_limit_usd is None


def test_the_seed_is_1_if_none_is_given():
    assert parsed(changed("seed = 7\n", "")).seed == 1


def test_a_preset_gives_parameters_and_a_key_replaces_one_whole():
    text = changed('preset = "coding"', 'preset = "coding"\nthink_s = {value = 2}\nsteps_max = 3')
    entry = parsed(text).workloads[0]
    assert entry.parameters.model_dump(exclude_none=True) == {
        "output_tokens": {"quantiles": {"0.05": 89, "0.5": 216, "0.95": 1543}},
        "think_s": {"value": 2},
        "steps_max": 3,
    }
    assert (entry.kind, entry.preset, entry.name, entry.task_limit_s) == ("agent", "coding", "coding", 600)


@pytest.mark.parametrize(
    ("lines", "name"),
    [
        pytest.param('kind = "agent"\npreset = "coding"\nname = "mine"', "mine", id="given"),
        pytest.param('kind = "agent"\npreset = "coding"', "coding", id="preset"),
        pytest.param(
            'kind = "plain"\noutput_tokens = {value = 1}\nthink_s = {value = 1}', "plain", id="kind"
        ),
    ],
)
def test_name_of_a_workload(lines, name):
    assert parsed(changed('kind = "agent"\npreset = "coding"', lines)).workloads[0].name == name


def test_a_backend_at_a_url():
    lines = """url = "https://api.example.com/v1"
model = "sol"
key_env = "OPENAI_API_KEY"
service_tier = "ultrafast"
transport = "new-connection"
output_control = "ignore_eos"
extra_body = {temperature = 0}
limits = {total_s = 60}
price = {input = 2, cached = 0.2, output = 10}"""
    backend = parsed(changed(FAST, lines)).backends["fast"]
    assert backend.extra_body == {"temperature": 0}
    assert backend.limits == TimeLimits(total_s=60)
    assert (backend.price.input, backend.price.cached, backend.price.output) == (2, 0.2, 10)
    assert (backend.simulate, backend.dialect, backend.output_control) == (None, "openai-chat", "ignore_eos")


def test_an_open_load():
    lines = 'kind = "open"\narrivals = "poisson"\ntasks_per_s = 0.5\nmeasure_s = 60\nin_flight_max = 8'
    load = parsed(changed('kind = "closed"\nusers = 24\ntasks = 120', lines)).load
    assert load == OpenLoad(kind="open", arrivals="poisson", tasks_per_s=0.5, measure_s=60, in_flight_max=8)


@pytest.mark.parametrize("name", ["HF_TOKEN", "OPENAI_API_KEY", "MY_TEAMS_LONG_PROVIDER_KEY_2026", "_key"])
def test_names_of_variables_that_hold_keys(name):
    lines = f'url = "http://h/v1"\nmodel = "m"\nkey_env = "{name}"'
    assert parsed(changed(FAST, lines)).backends["fast"].key_env == name


def test_a_scenario_cannot_be_changed():
    scenario = parsed()
    with pytest.raises(ValidationError):
        scenario.seed = 2
    with pytest.raises(ValidationError):
        scenario.workloads[0].parameters.steps_max = 2


def test_what_is_written_of_a_scenario_holds_the_parameters():
    written = parsed().model_dump(mode="json", by_alias=True)
    assert written["schema"] == 1
    assert written["workloads"][0]["parameters"]["think_s"]["max"] == 3600


def test_a_file_is_read_with_or_without_a_byte_order_mark(tmp_path):
    path = tmp_path / "x.toml"
    path.write_bytes(b"\xef\xbb\xbf" + GOOD.encode())
    assert load_scenario(path, kinds=KINDS, profiles=PROFILES) == parsed()


@pytest.mark.parametrize(
    ("url", "here"),
    [
        ("http://127.0.0.1:8000/v1", True),
        ("http://localhost/v1", True),
        ("http://[::1]:80/v1", True),
        ("http://127.9.9.9/", True),
        ("https://api.example.com/v1", False),
        ("http://10.0.0.7/v1", False),
        ("http://localhost.example.com/", False),
    ],
)
def test_which_urls_are_loopback(url, here):
    assert is_loopback(Backend(url=url, model="m")) is here


def test_a_simulated_backend_is_on_this_machine():
    assert is_loopback(Backend(simulate="p", model="m"))


def test_tasks_and_duration_replace_each_other():
    by_time = with_overrides(parsed(), measure_s=5)
    assert (by_time.load.tasks, by_time.load.measure_s, by_time.load.users) == (None, 5, 24)
    by_tasks = with_overrides(by_time, tasks=9)
    assert (by_tasks.load.tasks, by_tasks.load.measure_s) == (9, None)


def test_no_override_changes_nothing():
    assert with_overrides(parsed()) == parsed()


def test_the_seed_of_the_command_line_wins_even_if_it_is_0():
    assert with_overrides(parsed(), seed=0).seed == 0


@pytest.mark.parametrize(
    ("chosen", "kept", "compared"),
    [
        pytest.param(["fast", "standard"], ["standard", "fast"], True, id="all, in the file's order"),
        pytest.param(["fast"], ["fast"], False, id="baseline left out"),
        pytest.param(["standard"], ["standard"], False, id="baseline alone"),
    ],
)
def test_chosen_backends(chosen, kept, compared):
    scenario = with_overrides(parsed(), backends=chosen)
    assert list(scenario.backends) == kept
    assert (scenario.compare is not None) is compared


def test_all_faults_of_the_command_line_are_told_at_once():
    with pytest.raises(ScenarioError) as caught:
        with_overrides(parsed(), tasks=0, seed=-1, backends=["fsat", "standard"])
    assert caught.value.problems == [
        '--backend: no backend "fsat"; did you mean "fast"? backends: standard, fast',
        "--seed: want a whole number >= 0 and <= 4294967295, got -1",
        "--tasks: want a whole number >= 1 and <= 10000000, got 0",
    ]
    with pytest.raises(ScenarioError, match="--tasks and --duration exclude each other"):
        with_overrides(parsed(), tasks=1, measure_s=1)
    with pytest.raises(ScenarioError, match="--duration: want a number > 0 and <= 31536000, got -1"):
        with_overrides(parsed(), measure_s=-1)


def test_a_duration_that_plans_too_many_arrivals_is_told_at_its_option():
    closed = 'kind = "closed"\nusers = 24\ntasks = 120'
    opened = 'kind = "open"\narrivals = "constant"\ntasks_per_s = 1e6\nmeasure_s = 1'
    with pytest.raises(ScenarioError) as caught:
        with_overrides(parsed(changed(closed, opened)), measure_s=60)
    assert caught.value.problems == [
        "--duration: so long at tasks_per_s, it plans 6e+07 tasks; want at most 10,000,000"
    ]


@pytest.mark.parametrize("name", ["gpt-5.6 fast", "a_b.c-d", "café", "標準"])
def test_names_may_have_letters_of_any_script(name):
    text = GOOD.replace("[backends.fast]", f'[backends."{name}"]')
    assert name in parsed(text).backends
