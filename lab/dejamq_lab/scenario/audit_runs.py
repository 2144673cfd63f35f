"""``python -m dejamq_lab.scenario.audit_runs FOLDER…``: audit runs of scenarios in one Spark session."""

import sys
from pathlib import Path

import msgspec

from dejamq_lab.scenario.trial import PLAYED, Played


def main(folders: list[str]) -> None:
    """Each folder gets its verdict.json, findings, anomalies and report beside its journals."""
    from dejamq_analytics.run import Request, run_audit
    from dejamq_analytics.session import make_session

    spark = make_session(quick=True)
    try:
        for folder in map(Path, folders):
            played = msgspec.json.decode((folder / PLAYED).read_bytes(), type=Played)
            if not played.problem:
                run_audit(Request([played.journal_dir], played.stores, folder), lambda text: None)
                spark.catalog.clearCache()
    finally:
        spark.stop()


if __name__ == "__main__":
    main(sys.argv[1:])
