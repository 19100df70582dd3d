"""The demo on Spark in a small size, on a machine without a Java of its own."""

import os
import subprocess
import sys
from pathlib import Path

SCRIPT = """
import sys
from pathlib import Path
from rich.console import Console
from midstream.demo.scenario import Size
from midstream.demo.show import show_demo

small = Size(rows=800, visits=150, known=40, batches=9, release=4, migrate_after=2, warm_up=2)
work = Path(sys.argv[1])
code = show_demo("jisc", True, work / "report", Console(width=120), work, small)
import os
print("JAVA_HOME", os.environ["JAVA_HOME"])
sys.exit(code)
"""


def test_the_demo_runs_on_spark_without_a_java_on_the_machine(tmp_path):
    tools = tmp_path / "tools"
    tools.mkdir()
    # What Spark's launcher calls, and no java.
    for folder in ("/bin", "/usr/bin"):
        for tool in Path(folder).iterdir():
            if not tool.name.startswith("java") and not (tools / tool.name).exists():
                (tools / tool.name).symlink_to(tool)
    environment = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    environment |= {"PATH": str(tools), "XDG_CACHE_HOME": str(tmp_path / "cache"), "PYSPARK_PYTHON": sys.executable}
    environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    (tmp_path / "work").mkdir()
    told = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path / "work")],
        env=environment,
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert told.returncode == 0, told.stdout[-3000:] + told.stderr[-3000:]
    assert "28,800 rows in, " in told.stdout and " results, 0 missing, 0 repeated" in told.stdout
    assert "new plan in effect" in told.stdout
    assert f"JAVA_HOME {tmp_path / 'cache' / 'midstream' / 'java'}" in told.stdout
    assert {path.name for path in (tmp_path / "work" / "report").iterdir()} == {"demo.png", "demo.html"}
