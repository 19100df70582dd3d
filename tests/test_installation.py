"""Hints name a command that works with this installation."""

import sys
from importlib import metadata

import pytest

from midstream.installation import install_command


class Installed:
    """A distribution that was installed from somewhere."""

    def __init__(self, direct_url: str | None) -> None:
        self._direct_url = direct_url

    def read_text(self, name: str) -> str | None:
        assert name == "direct_url.json"
        return self._direct_url


@pytest.mark.parametrize(
    ("direct_url", "requirement"),
    [
        (
            '{"url": "file:///src/midstream", "dir_info": {"editable": true}}',
            "midstream[cli,spark] @ file:///src/midstream",
        ),
        (None, "midstream[cli,spark]"),
        ("{", "midstream[cli,spark]"),
    ],
)
def test_what_was_installed_from_a_directory_is_installed_from_there_again(direct_url, requirement, monkeypatch):
    monkeypatch.setattr(metadata, "distribution", lambda name: Installed(direct_url))
    assert install_command("cli", "spark") == f'{sys.executable} -m pip install "{requirement}"'


def test_a_package_that_was_not_installed_is_looked_for_in_the_index(monkeypatch):
    def unknown(name: str) -> None:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "distribution", unknown)
    assert install_command("demo").endswith('-m pip install "midstream[demo]"')
