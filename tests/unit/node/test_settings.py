"""Settings: one name in flags, environment and file; the nearest source wins; nothing unknown."""

from __future__ import annotations

import pytest

from kvorum.core.errors import InvalidArgumentError
from kvorum.node.settings import load_config, parse_size

MIB = 1 << 20


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("65536", 65_536),
        ("512MiB", 512 * MIB),
        ("512 mib", 512 * MIB),
        (" 1.5GiB ", 3 << 29),
        ("2kB", 2_000),
        ("2KiB", 2_048),
        ("1.5 GB", 1_500_000_000),
        ("3TB", 3 * 10**12),
        ("7b", 7),
    ],
)
def test_a_size_is_read(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    "text", ["", "MiB", "-1", "1e3", "1.5", "1.0000001kB", "12 parsecs", "1 2", "\u0661MiB", "1.GB"]
)
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        parse_size(text, "memory")
    assert caught.value.field == "memory"
    assert caught.value.limit


def test_a_flag_goes_before_the_environment_and_that_before_the_file() -> None:
    text = 'name = "file"\nmemory = "16MiB"\ndrain_s = 3\ntls_ca = ""\n'
    environment = {
        "KVORUM_NODE_NAME": "env",
        "KVORUM_NODE_MEMORY": "32MiB",
        "KVORUM_ENDPOINTS": "not a setting of the node",
        "PATH": "/bin",
    }
    config = load_config({"name": "flag", "memory": None}, environment, text)
    assert (config.name, config.memory, config.drain_s) == ("flag", 32 * MIB, 3)


def test_every_kind_of_setting_can_come_as_text() -> None:
    environment = {
        "KVORUM_NODE_NAME": "a",
        "KVORUM_NODE_WINDOW": "2MiB",
        "KVORUM_NODE_CONCURRENT_GETS_MAX": "7",
        "KVORUM_NODE_HEARTBEAT_S": "0.25",
    }
    config = load_config({}, environment)
    assert (config.window, config.concurrent_gets_max, config.heartbeat_s) == (2 * MIB, 7, 0.25)


@pytest.mark.parametrize(
    ("field", "flags", "environment", "text"),
    [
        ("memmory", {"name": "a", "memmory": 1}, {}, ""),
        ("memmory", {"name": "a"}, {"KVORUM_NODE_MEMMORY": "1"}, ""),
        ("memmory", {"name": "a"}, {}, "memmory = 1"),
        ("settings", {"name": "a"}, {}, "memory ="),
        ("name", {}, {}, ""),
        ("name", {}, {}, "name = 7"),
        ("memory", {"name": "a"}, {}, "memory = true"),
        ("memory", {"name": "a"}, {}, "memory = 1.5"),
        ("memory", {"name": "a", "memory": "much"}, {}, ""),
        ("drain_s", {"name": "a", "drain_s": "soon"}, {}, ""),
        ("drain_s", {"name": "a"}, {}, "drain_s = [1]"),
        ("concurrent_gets_max", {"name": "a", "concurrent_gets_max": "1.5"}, {}, ""),
    ],
)
def test_what_is_unknown_missing_or_of_another_type_is_refused(
    field: str, flags: dict[str, object], environment: dict[str, str], text: str
) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        load_config(flags, environment, text)
    assert caught.value.field == field
    assert caught.value.limit
