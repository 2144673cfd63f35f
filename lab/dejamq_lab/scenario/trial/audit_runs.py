"""``python -m dejamq_lab.scenario.trial.audit_runs FOLDER…``: audit runs of scenarios as one history."""

import sys
from pathlib import Path

import msgspec

from dejamq_lab.scenario.trial.trial import PLAYED, PlayedRun


def main(folders: list[str]) -> None:
    """Each folder gets its verdict, findings and anomalies, unless its scenario did not come to its end."""
    from dejamq_analytics.run import Request, session_for
    from dejamq_analytics.trial_audit import AuditedRun, audit_runs

    played = [
        (folder, msgspec.json.decode((folder / PLAYED).read_bytes(), type=PlayedRun)) for folder in map(Path, folders)
    ]
    with session_for(Request([]), bounded=True) as session:
        audit_runs(session, [AuditedRun(Path(one.journal_dir), folder) for folder, one in played if not one.problem])


if __name__ == "__main__":
    main(sys.argv[1:])
