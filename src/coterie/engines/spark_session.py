"""Spark's session: where Java and Python are, and how one is started on this machine."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from coterie.errors import InvalidInput, MissingExtra

SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
}
"""Of a session that this engine starts because there is none."""


def session() -> Any:
    """The active one, or a new one on this machine."""
    try:
        from pyspark.sql import SparkSession
    except ImportError as missing:
        raise MissingExtra("the spark engine", "spark") from missing
    if (active := SparkSession.getActiveSession()) is not None:
        return active
    prepare_environment()
    builder = SparkSession.builder.master(f"local[{max(2, os.cpu_count() or 2)}]").appName(
        "coterie"
    )
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    started = builder.getOrCreate()
    started.sparkContext.setLogLevel("OFF")
    return started


def prepare_environment() -> None:
    """Tell Spark where Java and Python are, unless the environment does, and to stay on this
    machine.
    """
    java = java_home()
    if java is None:
        raise InvalidInput(
            "Spark needs Java 17 or newer: install it (Debian: apt install default-jre-headless) "
            "or set JAVA_HOME."
        )
    os.environ.setdefault("JAVA_HOME", str(java))
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)


def java_home() -> Path | None:
    """Where Java is: JAVA_HOME, or on the path."""
    if home := os.environ.get("JAVA_HOME"):
        return Path(home)
    if java := shutil.which("java"):
        return Path(java).resolve().parents[1]
    return None


@contextmanager
def this_interpreter(context: Any) -> Iterator[None]:
    """Let tasks on this machine run the Python of this process, unless the environment names
    another one.
    """
    before = context.pythonExec
    chosen = (
        "PYSPARK_PYTHON" in os.environ or context.getConf().get("spark.pyspark.python") is not None
    )
    if context.master.startswith("local") and not chosen:
        context.pythonExec = sys.executable
    try:
        yield
    finally:
        context.pythonExec = before
