"""config.toml as it is read and changed."""

from __future__ import annotations

import tempfile
from datetime import date
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from eaglechat.settings import config_file
from eaglechat.settings.config_file import SettingsFileError, from_mapping, load, save_setting
from eaglechat.settings.description import describe
from eaglechat.settings.model import Settings


@pytest.fixture
def config(home: Path) -> Path:
    path = home / "eaglechat" / "config" / "config.toml"
    path.parent.mkdir(parents=True)
    return path


def test_without_a_file_everything_is_default(config: Path) -> None:
    assert config_file.load(config) == (Settings(), [])


def test_a_bad_value_is_named_and_costs_only_itself(config: Path) -> None:
    config.write_text(
        '[generation]\ntemperature = "hot"\ntop_k = 7\nseed = 1\n'
        "[speculation]\nn_draft_max = 99\np_min = 0.25\nn_drafts = 2\n"
        "[interface]\nshow_panel = 1\ntoken_colours = true\n"
    )

    loaded, problems = config_file.load(config)

    assert {problem.key for problem in problems} == {
        "generation.temperature",
        "speculation.n_draft_max",
        "speculation.n_drafts",
        "interface.show_panel",
        "interface.token_colours",
    }
    assert all(str(config) in str(problem) and problem.key in str(problem) for problem in problems)
    by_key = {problem.key: str(problem) for problem in problems}
    assert '"hot"' in by_key["generation.temperature"]
    assert "99" in by_key["speculation.n_draft_max"]
    assert "16" in by_key["speculation.n_draft_max"]
    assert (loaded.generation.temperature, loaded.speculation.n_draft_max) == (0.7, "auto")
    assert (loaded.generation.top_k, loaded.generation.seed) == (7, 1)
    assert loaded.speculation.p_min == 0.25
    assert loaded.interface.show_panel is True


@pytest.mark.parametrize(
    ("value", "key"),
    [
        ("generation = 3", "generation"),
        ("[generations]\ntop_k = 1", "generations"),
        ("[generation]\ntop_k = true", "generation.top_k"),
        ("[generation]\ntop_k = 1.5", "generation.top_k"),
        ("[generation]\ntemperature = nan", "generation.temperature"),
        ("[generation]\ntemperature = inf", "generation.temperature"),
        ("[engine]\nn_batch = 16", "engine.n_batch"),
        ("[engine]\nn_ctx = 99999999999", "engine.n_ctx"),
        ("[engine]\nn_gpu_layers = 99999999999", "engine.n_gpu_layers"),
        ("[engine]\ncommand = 'ssh'", "engine.command"),
        ("[engine]\nsplit_mode = 'rows'", "engine.split_mode"),
        ("[engine]\nflash_attention = true", "engine.flash_attention"),
        ("[engine]\ntensor_split = [1, -1]", "engine.tensor_split"),
    ],
)
def test_a_value_of_the_wrong_kind_or_size_is_refused(config: Path, value: str, key: str) -> None:
    config.write_text(value)

    loaded, problems = config_file.load(config)

    assert [problem.key for problem in problems] == [key]
    assert loaded == Settings()


def test_the_split_that_llama_cpp_cannot_draft_with_is_refused_with_the_reason(
    config: Path,
) -> None:
    config.write_text("[engine]\nsplit_mode = 'tensor'")
    _, (problem,) = config_file.load(config)
    assert "engine.split_mode tensor cannot be used" in str(problem)
    assert "assertion when a draft reads the target's layers" in str(problem)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ("[generation]\ntemperature = 9.0",
         "generation.temperature 9.0 must be between 0 and 5; using the default, 0.7"),
        ("[generation]\nmax_tokens = -1",
         "generation.max_tokens -1 must be 0 or more; using the default, 0"),
        ("[generation]\nrepeat_penalty = 0",
         "generation.repeat_penalty 0 must be above 0 and at most 4; using the default, 1"),
        ("[generation]\nsystem_prompt = 3",
         "generation.system_prompt 3 must be text; using the default, which is empty"),
        ("[speculation]\nn_draft_max = 'fast'",
         'speculation.n_draft_max "fast" must be a whole number between 0 and 16, or auto; '
         "using the default, auto"),
        ("[engine]\nkv_type = 'q4'",
         'engine.kv_type "q4" must be f16 or q8_0; using the default, f16'),
        ("[engine]\ncommand = 'ssh'",
         'engine.command "ssh" must be a list of strings, such as '
         '["ssh", "gpu-box", "eaglechat", "engine"]; using the default, which is empty'),
        ("[interface]\nshow_panel = 1979-05-27",
         "interface.show_panel 1979-05-27 must be true or false; using the default, true"),
        ("[generation]\ntempreature = 1",
         "generation.tempreature is not a setting, and is ignored; "
         "did you mean generation.temperature?"),
        ("[generation]\nqqq = 1",
         "generation.qqq is not a setting, and is ignored; [generation] has temperature, top_k, "
         "top_p, min_p, repeat_penalty, seed, max_tokens, thinking, effort, system_prompt, role"),
        ("[generations]", "generations is not a table of settings, and is ignored; "
         "did you mean [generation]?"),
        ("engine = 3", "engine must be a table: write [engine], and its settings on the lines "
         "below it; using the defaults"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_in_plain_english(config: Path, content: str, sentence: str) -> None:
    config.write_text(content)
    _, (problem,) = config_file.load(config)
    assert str(problem) == f"{config}: {sentence}"


def test_a_byte_order_mark_is_no_fault(config: Path) -> None:
    config.write_bytes(b"\xef\xbb\xbf[generation]\r\ntop_k = 3\r\n")
    loaded, problems = config_file.load(config)
    assert (loaded.generation.top_k, problems) == (3, [])


@pytest.mark.parametrize(
    "content", [b"[generation", b"\xff\xfe", b'a = "\n', b"a = " + b"[" * 5000 + b"]" * 5000]
)
def test_a_file_that_is_no_toml_is_named(config: Path, content: bytes) -> None:
    config.write_bytes(content)

    loaded, (problem,) = config_file.load(config)

    assert loaded == Settings()
    assert str(problem).startswith(f"{config}: cannot be read")


def test_the_settings_know_what_the_file_gives(config: Path) -> None:
    config.write_text("[generation]\ntop_k = 40\ntemperature = 99\n[given]\nx = 1")

    loaded, problems = config_file.load(config)

    assert loaded.given == {"generation.top_k"}
    assert len(problems) == 2


def test_a_folder_in_its_place_is_named_once(config: Path) -> None:
    config.mkdir()
    _, (problem,) = config_file.load(config)
    assert str(problem) == f"{config}: cannot be read (Is a directory); using the defaults"


toml_values = st.recursive(
    st.one_of(
        st.integers(),
        st.floats(),
        st.booleans(),
        st.text(max_size=8),
        st.dates(),
        st.sampled_from((10**400, "f16", -1)),
    ),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab", max_size=2), inner),
    max_leaves=4,
)
setting_keys = st.sampled_from(
    [tuple(doc.name.split(".")) for doc in describe()] + [("engine", "nonsense"), ("nowhere", "x")]
)


@given(setting_keys, toml_values)
@example(("engine", "tensor_split"), [date(2020, 1, 1)])
@example(("engine", "n_ctx"), 10**400)
def test_whatever_a_value_is_it_costs_only_itself(key: tuple[str, str], value: object) -> None:
    table, name = key
    settings, problems = from_mapping({table: {name: value}}, Path("config.toml"))
    for problem in problems:
        assert "config.toml" in str(problem)
    if problems:
        assert settings == Settings()


@given(st.text(max_size=60))
@example("[engine]\ntensor_split = [2020-01-01]\n")
@example("[engine]\nn_ctx = " + "9" * 5000)
@example("a = " + "[" * 5000)
def test_a_file_of_any_text_is_read_or_named(text: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "config.toml")
        path.write_text(text, encoding="utf-8", newline="")
        load(path)


# --- changing single settings: the rest of the file stays as it is ---


def test_comments_and_other_values_survive(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    before = "# hello\n[generation] # how\ntop_k = 20 # few\n\n[other]\nx = 1\n"
    file.write_text(before)
    save_setting(file, "generation", "temperature", 0.25)
    save_setting(file, "engine", "command", ("ssh", "box"))
    text = file.read_text()
    assert "# hello" in text
    assert "top_k = 20 # few" in text
    loaded, _problems = config_file.load(file)
    assert loaded.generation.temperature == 0.25
    assert loaded.generation.top_k == 20
    assert loaded.engine.command == ("ssh", "box")


def test_a_setting_is_taken_out_again(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text("[generation]\ntop_k = 20 # few\n")
    save_setting(file, "generation", "temperature", 0.25)
    save_setting(file, "generation", "temperature", None)
    save_setting(file, "generation", "top_p", None)
    assert file.read_text() == "[generation]\ntop_k = 20 # few\n"


def test_what_nobody_set_needs_no_table(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_text("# mine\n")
    save_setting(file, "generation", "top_k", None)
    assert file.read_text() == "# mine\n"


def test_the_line_ends_and_the_mark_of_a_windows_editor_stay(tmp_path: Path) -> None:
    file = tmp_path / "config.toml"
    file.write_bytes(b"\xef\xbb\xbf# mine\r\n[generation]\r\ntop_k = 3 # few\r\n")
    save_setting(file, "generation", "top_p", 0.5)
    save_setting(file, "generation", "top_k", 4)
    assert file.read_bytes() == (
        b"\xef\xbb\xbf# mine\r\n[generation]\r\ntop_k = 4 # few\r\ntop_p = 0.5\r\n"
    )


def test_a_missing_file_is_made_with_its_directory(tmp_path: Path) -> None:
    save_setting(tmp_path / "new" / "config.toml", "interface", "theme", "eagle-light")
    loaded, problems = config_file.load(tmp_path / "new" / "config.toml")
    assert loaded.interface.theme == "eagle-light"
    assert not problems


@pytest.mark.parametrize("value", [3, None])
@pytest.mark.parametrize("content", ["not = = toml", "generation = 3\n", "[[generation]]\nx = 1\n"])
def test_a_file_that_cannot_be_changed_is_left_and_named(
    tmp_path: Path, content: str, value: int | None
) -> None:
    file = tmp_path / "config.toml"
    file.write_text(content)
    with pytest.raises(SettingsFileError, match=r"config\.toml was not changed"):
        save_setting(file, "generation", "top_k", value)
    assert file.read_text() == content
