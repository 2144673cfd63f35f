"""``python -m dejamq_lab.scenario.audit_runs FOLDER…``: audit runs of scenarios as one history, in one Spark."""

import sys
from pathlib import Path

import msgspec

from dejamq_lab.scenario.trial import PLAYED, Played


def main(folders: list[str]) -> None:
    """Each folder gets its verdict, findings and anomalies, unless its scenario did not come to its end."""
    from dejamq_analytics.runs import Run, audit_runs
    from dejamq_analytics.session import make_session

    played = [
        (folder, msgspec.json.decode((folder / PLAYED).read_bytes(), type=Played)) for folder in map(Path, folders)
    ]
    spark = make_session(quick=True)
    try:
        audit_runs(spark, [Run(Path(one.journal_dir), folder) for folder, one in played if not one.problem])
    finally:
        spark.stop()


if __name__ == "__main__":
    main(sys.argv[1:])
