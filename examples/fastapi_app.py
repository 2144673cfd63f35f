"""A FastAPI application that starts a producer and a consumer with its lifespan, and drains them when it stops.

    pip install fastapi uvicorn
    uvicorn --app-dir examples fastapi_app:app
    curl -X POST localhost:8000/orders/17        # sent
    curl localhost:8000/orders/17                # {"order": "17", "state": "packed"}

It talks to the cluster in DEJAMQ_NAMESRV. Uvicorn owns the signals and ends the lifespan when one comes: nothing of
dejamq has to be told. Handlers run in the application's event loop, beside its requests.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from dejamq import ConsumeFrom, DejamqError, Message, Producer, PushConsumer, ReceivedMessage
from fastapi import FastAPI, HTTPException, Request

TOPIC, GROUP = "orders-to-pack", "packing"


async def pack(states: dict[str, str], message: ReceivedMessage) -> None:
    """Stands for the work behind the web."""
    states[message.body.decode()] = "packed"


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Serving begins when both clients run. At the end the consumer drains first: its handlers may still send."""
    states: dict[str, str] = {}
    # The very first order creates the topic; a route read every second finds it soon.
    consumer = PushConsumer(GROUP, consume_from=ConsumeFrom.FIRST_OFFSET, poll_name_server_interval_ms=1_000)
    consumer.subscribe(TOPIC, partial(pack, states))
    async with Producer("web-shop") as producer, consumer:
        app.state.producer, app.state.states = producer, states
        yield


app = FastAPI(lifespan=lifespan)


@app.post("/orders/{order}", status_code=202)
async def take_order(order: str, request: Request) -> dict[str, str]:
    """Accepted means stored by the broker. After a failure nobody knows whether it is, unless ``definite``."""
    try:
        result = await request.app.state.producer.send(Message(TOPIC, order.encode(), keys=order))
    except DejamqError as error:
        raise HTTPException(503, "surely not taken" if error.definite else "perhaps taken: ask later") from error
    return {"order": order, "message_id": result.message_id}


@app.get("/orders/{order}")
async def order_state(order: str, request: Request) -> dict[str, str]:
    return {"order": order, "state": request.app.state.states.get(order, "unknown")}
