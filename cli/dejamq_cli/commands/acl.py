"""``dejamq acl``: what users may do in a cluster with access control."""

from enum import StrEnum
from typing import Annotated, Any

import typer
from dejamq import Admin
from dejamq.admin.access import AccessRule
from dejamq_proto.access.changes import rule_of, ruled, unruled
from dejamq_proto.access.model import check_rule

from dejamq_cli.access.admin_session import ask
from dejamq_cli.commands.user import File, change
from dejamq_cli.terminal.help_text import examples
from dejamq_cli.terminal.output import DEFAULT_NAMESRV, Format, Namesrv, Output, show_rows, tell

app = typer.Typer(help="Rules of access control: what users may do, and may not.", no_args_is_help=True)


class Decision(StrEnum):
    ALLOW = "Allow"
    DENY = "Deny"


User = Annotated[str, typer.Argument(metavar="USER", help="The access key of the user.")]
Resource = Annotated[
    str,
    typer.Argument(metavar="RESOURCE", help="Topic:NAME, Group:NAME, Cluster:NAME; * at the end: all that begin so."),
]


@app.command("set", epilog=examples(
    "dejamq acl set shop Topic:orders Pub", "dejamq acl set billing Group:billing Sub",
    "dejamq acl set shop 'Topic:pay*' All --decision Deny",
))  # fmt: skip
def set_(
    user: User,
    resource: Resource,
    actions: Annotated[
        list[str], typer.Argument(metavar="ACTION…", help="All, Pub, Sub, Create, Update, Delete, Get, List.")
    ],
    decision: Annotated[Decision, typer.Option("--decision", help="Allow, or deny.")] = Decision.ALLOW,
    source: Annotated[
        list[str] | None, typer.Option("--source", metavar="IP", help="Only from this address or network; repeatable.")
    ] = None,
    file: File = None,
    namesrv: Namesrv = DEFAULT_NAMESRV,
) -> None:
    """Make a rule at every server; it takes the place of the user's rule for the same resource.

    Nothing is allowed that no rule allows. Of the rules that fit a name the most exact one counts: a name before a
    prefix, a longer prefix before a shorter one, Deny before Allow.
    """
    rule = rule_of(user, resource, actions, decision, source or ())
    check_rule(rule)
    told = AccessRule(user, rule.resource, list(map(str, rule.actions)), decision, rule.source_ips)
    change(file, ruled([rule]), namesrv, lambda admin: admin.put_rules([told]))
    tell(f"{user} {decision.lower()} {'|'.join(rule.actions)} on {rule.resource}")


@app.command(epilog=examples("dejamq acl delete shop Topic:orders", "dejamq acl delete shop"))
def delete(
    user: User,
    resource: Annotated[str, typer.Argument(metavar="[RESOURCE]", help="As the rule has it; default: all.")] = "",
    file: File = None,
    namesrv: Namesrv = DEFAULT_NAMESRV,
) -> None:
    """Delete rules of a user at every server."""
    change(file, unruled(user, resource), namesrv, lambda admin: admin.delete_rules(user, resource))
    tell(f"rules of {user}{f' for {resource}' if resource else ''} deleted")


@app.command("list", epilog=examples("dejamq acl list", "dejamq acl list shop -o json"))
def list_(
    user: Annotated[str, typer.Argument(metavar="[USER]", help="Part of the user's name.")] = "",
    namesrv: Namesrv = DEFAULT_NAMESRV,
    output: Output = Format.TABLE,
) -> None:
    """The rules of each server."""

    async def look(admin: Admin) -> list[dict[str, Any]]:
        found = await admin.rules(user)
        return [
            {
                "user": rule.user, "resource": rule.resource, "actions": "|".join(rule.actions),
                "decision": rule.decision, "source": ", ".join(rule.source_ips) or "any", "kind": rule.policy_type,
                "server": server,
            }
            for server, rules in sorted(found.items())
            for rule in rules
        ]  # fmt: skip

    show_rows(ask(namesrv, look), output, empty="no rules")
