"""Wait while downstream is away: no message fails for it, none uses up a try, none becomes a dead letter.

When the bank does not answer, handlers wait at a gate, and the consumer is suspended: it keeps its queues and pulls no
more. One probe asks the bank until it is back. ``consume_timeout_ms`` (15 minutes) is the longest a handler may wait:
after it the message is given back and comes again later.

    python examples/downstream_away.py

talks to the cluster in DEJAMQ_NAMESRV, sends 30 payments while the bank goes away in the middle, and ends.
"""

import asyncio
import uuid

from dejamq import ConsumeFrom, Message, Producer, PushConsumer, ReceivedMessage

TOPIC, GROUP, PAYMENTS = "payments", "bank-transfers", 30


class Bank:
    """Stands for the service behind the handler. Goes away for a second after ten transfers."""

    def __init__(self) -> None:
        self.transfers: set[str] = set()
        self.away = False
        self._was_away = False

    async def transfer(self, payment: str) -> None:
        if len(self.transfers) >= 10 and not self._was_away:
            self.away = self._was_away = True
            asyncio.get_running_loop().call_later(1, setattr, self, "away", False)
        await self.ask()
        self.transfers.add(payment)  # by its id: a payment that comes twice is one transfer

    async def ask(self) -> None:
        if self.away:
            raise ConnectionError("the bank does not answer")


class Gate:
    """Open while the bank answers. ``async with`` ends its probe."""

    def __init__(self, bank: Bank, consumer: PushConsumer) -> None:
        self._bank, self._consumer = bank, consumer
        self._probe: asyncio.Task[None] | None = None

    async def transfer(self, payment: str) -> None:
        """Returns when it is done, however long the bank is away."""
        while True:
            if self._probe is not None:
                await asyncio.shield(self._probe)  # a cancelled handler leaves it to the others
            try:
                return await self._bank.transfer(payment)
            except ConnectionError as error:
                if self._probe is None:
                    print(f"{error}: waiting", flush=True)
                    self._consumer.suspend()
                    self._probe = asyncio.create_task(self._until_back())

    async def _until_back(self) -> None:
        while True:
            await asyncio.sleep(0.2)
            try:
                await self._bank.ask()
            except ConnectionError:
                continue
            break
        print("the bank is back", flush=True)
        self._probe = None
        self._consumer.resume()

    async def __aenter__(self) -> "Gate":
        return self

    async def __aexit__(self, *error: object) -> None:
        if self._probe is not None:
            self._probe.cancel()


async def main() -> None:
    run, bank = uuid.uuid4().hex[:8], Bank()
    payments = {f"{run}-{number}" for number in range(PAYMENTS)}
    tries: list[int] = []
    consumer = PushConsumer(GROUP, consume_from=ConsumeFrom.FIRST_OFFSET, max_concurrency=4)
    async with Producer("checkout") as producer:
        await producer.send_batch([Message(TOPIC, payment.encode()) for payment in sorted(payments)])

    async with Gate(bank, consumer) as gate:

        async def pay(message: ReceivedMessage) -> None:
            await gate.transfer(message.body.decode())
            tries.append(message.reconsume_times + 1)
            if payments <= bank.transfers:
                consumer.stop()

        consumer.subscribe(TOPIC, pay)
        await consumer.run_until_stopped()
    print(f"{len(payments & bank.transfers)} of {PAYMENTS} payments transferred, at most {max(tries)} try each")


if __name__ == "__main__":
    asyncio.run(main())
