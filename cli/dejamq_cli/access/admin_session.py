"""Asking a cluster through ``dejamq.Admin``, whole or half, and saying clearly what could not be asked."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import TypeVar

import typer
from dejamq import Admin
from dejamq.values.config import parse_addresses
from dejamq_proto.account import Account
from dejamq_proto.codes import BrokerUnavailable, Code, ConfigError, DejamqError
from dejamq_proto.names import MASTER_ID

from dejamq_cli.terminal.output import CANNOT_TELL, NO, say

Answer = TypeVar("Answer")
Question = Callable[[Admin], Awaitable[Answer]]
Silent = Mapping[str, DejamqError]
"""Brokers that were asked and did not answer, by name, and why."""


def ask(namesrv: str, question: Question[Answer]) -> Answer:
    """The answer of a cluster of which everybody answers. Raises as ``Admin``, and says what to do without any."""
    return asyncio.run(asked(namesrv, question))


def ask_half(namesrv: str, question: Question[Answer]) -> tuple[Answer, Silent]:
    """The answer of those masters that answer, and who did not: hand that to ``finish``."""
    return asyncio.run(asked_half(namesrv, question))


async def asked(namesrv: str, question: Question[Answer], account: Account | None = None) -> Answer:
    """``account``: whose keys are shown; None: those of the environment."""
    keys = {} if account is None else {"access_key": account.access_key, "secret_key": account.secret_key}
    async with Admin(namesrv, **keys) as admin:
        try:
            return await question(admin)
        except DejamqError as error:
            if error.code != Code.NO_NAME_SERVER:
                raise
            raise nobody_answers(namesrv, error) from None


async def asked_half(
    namesrv: str, question: Question[Answer], account: Account | None = None
) -> tuple[Answer, Silent]:  # fmt: skip
    async def half(admin: Admin) -> tuple[Answer, Silent]:
        silent = await admin.leave_out_silent()
        return await question(admin), silent

    return await asked(namesrv, half, account)


def nobody_answers(namesrv: str, error: DejamqError) -> BrokerUnavailable:
    """One line that names the fault and the remedy."""
    reason = str(error).rpartition(": ")[2]
    return BrokerUnavailable(
        f"no dejamq name server answers at {';'.join(parse_addresses(namesrv))} ({reason}); give --namesrv or "
        "DEJAMQ_NAMESRV (not RocketMQ's: it speaks another protocol), or start a cluster with: dejamq cluster up",
        code=Code.NO_NAME_SERVER,
    )


async def refuse_half(admin: Admin, what: str, brokers: Collection[str] | None = None) -> None:
    """Before a change at these brokers, all by default: raise BrokerUnavailable while one of them does not answer.

    Nothing is changed anywhere then.
    """
    silent = await admin.leave_out_silent()
    names = [f"{name} ({_reason(why)})" for name, why in silent.items() if brokers is None or name in brokers]
    if names:
        raise BrokerUnavailable(
            f"{what}: no answer from {', '.join(names)}; nothing was changed", code=Code.SYSTEM_ERROR
        )


async def masters_among(admin: Admin, brokers: Collection[str] | None) -> list[str]:
    """These brokers, or all brokers with a master, by name. Raises ConfigError for an unknown broker, and DejamqError
    when no broker has a master.
    """
    names = sorted(brokers or [broker.broker_name for broker in await admin.brokers() if MASTER_ID in broker.addresses])
    if not names:
        raise DejamqError("no broker with a master is registered; start one with: dejamq serve broker")
    await check_brokers(admin, names)
    return names


async def check_brokers(admin: Admin, names: Collection[str]) -> None:
    """Raise ConfigError for a broker that is not registered."""
    known = {broker.broker_name for broker in await admin.brokers()}
    if unknown := sorted(set(names) - known):
        raise ConfigError(f"no broker is named {', '.join(unknown)}; there are {', '.join(sorted(known)) or 'none'}")


def say_silent(silent: Silent) -> None:
    """A line on standard error for each."""
    for name, error in silent.items():
        say(f"{name} does not answer ({_reason(error)}); what it has is missing here")


def finish(silent: Silent, *, findings: bool = False) -> None:
    """End the command: with status 1 for findings, with 3 while somebody did not answer, who is named; else go on."""
    say_silent(silent)
    if findings or silent:
        raise typer.Exit(NO if findings else CANNOT_TELL)


def _reason(error: DejamqError) -> str:
    return str(error).rpartition(": ")[2]
