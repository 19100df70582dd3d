"""The demo on Spark in a small size, on a machine without a Java of its own."""

import os
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

SCRIPT = """
import os
import sys
from pathlib import Path
from rich.console import Console
from midstream.adaptation import Adaptation
from midstream.demo.scenario import Size
from midstream.demo.show import show_demo
from midstream.planning.cost import CostCoefficients

small = Size(rows=3000, visits=100, known=24, batches=11, release=4, migrate_after=2, warm_up=2)
work = Path(sys.argv[1])
codes = []
adaptation = Adaptation(coefficients=CostCoefficients())
for name, strategy, adapt in (("adapts", None, adaptation), ("by order", "jisc", None)):
    (work / name).mkdir()
    print("==", name)
    codes.append(show_demo(strategy, adapt, True, work / name / "report", Console(width=400), work / name, small))
print("==")
print("JAVA_HOME", os.environ["JAVA_HOME"])
sys.exit(any(codes))
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
    _, adapts, by_order, _ = re.split(r"^==.*\n", told.stdout, flags=re.MULTILINE)
    for text in (adapts, by_order):
        assert "132,000 rows in, " in text and " results, 0 missing, 0 repeated" in text
        assert "new plan in effect" in text
    assert re.search(r"^midstream, after batch \d+: The plan was changed from \"o c v s\" to ", adapts, re.MULTILINE)
    assert adapts.index("release:") < adapts.index("The plan was changed") < adapts.index("new plan in effect")
    # It is decided after a batch, and said after it.
    said = re.findall(r"^batch +(\d+) of 11|^midstream, after batch (\d+):", adapts, re.MULTILINE)
    for (batch, _), (_, after) in pairwise(said):
        assert not batch or not after or int(after) <= int(batch)
    assert "the join of o, c and v makes" in adapts and "requested" not in adapts
    assert "new plan requested (jisc)" in by_order and "The plan was changed" not in by_order
    assert f"JAVA_HOME {tmp_path / 'cache' / 'midstream' / 'java'}" in told.stdout
    for name in ("adapts", "by order"):
        report = tmp_path / "work" / name / "report"
        assert {path.name for path in report.iterdir()} == {"demo.png", "demo.html"}
