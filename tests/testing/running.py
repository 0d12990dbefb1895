"""A run of pytest in a separate process, as a user of the plugin has it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def run_pytest(folder: Path) -> str:
    """Runs the tests in a folder, with this plugin and anyio's and no others; returns the output."""
    command = [sys.executable, "-m", "pytest", "-q", "-W", "error", "--rootdir", str(folder)]
    plugins = ["-p", "no:cacheprovider", "-p", "anyio.pytest_plugin", "-p", "headpond.testing.plugin"]
    run = subprocess.run(
        [*command, *plugins, "."],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    return run.stdout + run.stderr
