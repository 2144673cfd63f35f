"""Scenarios of the families P and B: something is stored twice."""

from dejamq_lab.rocketmq.collecting import Causes
from dejamq_lab.rocketmq.links import ANSWER, SEND, SEND_BACK
from dejamq_lab.rocketmq.scenario import RealScenario
from dejamq_lab.rocketmq.servers import ServerLayout
from dejamq_lab.rocketmq.stage import RocketMQStage

RETRY = "%RETRY%"


def p1(stage: RocketMQStage) -> Causes:
    """The broker stands still for as long as a try may take, and then stores both tries."""
    one = stage.consumer("billing-1")
    maker = stage.producer(400, "try=2000")
    maker.wait("sent", times=20)
    with stage.servers.broker.frozen():
        stage.sleep(3, "the broker stands still")
    maker.wait("end")
    maker.stop()
    one.wait("got", times=401)
    stage.traces()
    one.stop()
    return {"*": ["P1"]}


def p3(stage: RocketMQStage) -> Causes:
    """A broker whose slave is not there says so, and the producer is set to send to the other broker then."""
    one = stage.consumer("billing-1")
    stage.send(6, "other=true")
    one.wait("got", times=7)  # those that were first sent to the other broker are there once
    stage.traces()
    one.stop()
    return {"*": ["P3"]}


def p5(stage: RocketMQStage) -> Causes:
    """A program sends one message object twice."""
    one = stage.consumer("billing-1")
    stage.send(8, "again=order-3")
    one.wait("got", times=9)
    stage.traces()
    one.stop()
    return {"*": ["P5"]}


def p7(stage: RocketMQStage) -> Causes:
    """A local transaction takes longer than the broker waits: a check commits it, and then its program does."""
    one = stage.consumer("billing-1")
    maker = stage.producer(2, "transaction=14000", "heartbeat=1000")
    maker.wait("committed", times=2)
    one.wait("got", times=4)
    maker.wait("end")
    maker.stop()
    stage.traces()
    one.stop()
    return {"*": ["P7"]}


def p8(stage: RocketMQStage) -> Causes:
    """The broker is killed before it wrote that a transaction has ended, and asks again after its start."""
    one = stage.consumer("billing-1", "heartbeat=1000")
    maker = stage.producer(2, "transaction=0", "heartbeat=1000", "keep=600000")
    maker.wait("committed", times=2)
    one.wait("done", times=2)
    stage.wait_for_offsets(2)
    stage.traces()
    stage.servers.broker.kill()
    stage.servers.broker.again(transactionOpBatchInterval=500)
    one.wait("done", times=4)
    stage.traces()
    maker.stop()
    one.stop()
    return {"*": ["P8"]}


def b11(stage: RocketMQStage) -> Causes:
    """The answer to a failed message that was sent back is lost, and the consumer sends it itself as well."""
    one = stage.consumer("billing-1", "fail=order-3")
    stage.links.lose("billing-1", SEND_BACK, what=ANSWER)
    stage.send(8)
    one.wait("got", "order-3", times=3)
    stage.links.deliver()
    stage.traces()
    one.stop()
    return {"*": ["L1", "B11"]}


def b12(stage: RocketMQStage) -> Causes:
    """A failed message can be sent back in no way, so the consumer handles it again itself."""
    one = stage.consumer("billing-1", "fail=order-3")
    stage.links.lose("billing-1", SEND_BACK, SEND, topic=RETRY)
    stage.send(8)
    one.wait("got", "order-3", times=2)
    stage.links.deliver()
    stage.traces()
    one.stop()
    return {"*": ["B12"]}


def b13(stage: RocketMQStage) -> Causes:
    """A handler takes longer than a message may take: it is sent back, and then the handler ends well."""
    one = stage.consumer("billing-1", "timeout=1", "slow=order-1:150000")
    stage.send(8)
    one.wait("got", "order-1", times=2, within=240)
    one.wait("done", "order-1", times=2, within=240)
    stage.traces()
    one.stop()
    return {"*": ["B13"]}


ALL = (
    # A busy machine lets requests wait, and a broker refuses those that waited for 200 ms: the first try would be one.
    RealScenario("P1", p1, ServerLayout(settings={"waitTimeMillsInSendQueue": 10_000})),
    RealScenario("P3", p3, ServerLayout(("broker-a", "broker-b"), of={
        "broker-a": {"brokerRole": "SYNC_MASTER", "inSyncReplicas": 2, "slaveTimeout": 500},
    })),
    RealScenario("P5", p5),
    RealScenario("P7", p7, ServerLayout(settings={"transactionTimeOut": 3_000, "transactionCheckInterval": 3_000})),
    RealScenario("P8", p8, ServerLayout(settings={
        "transactionTimeOut": 45_000, "transactionCheckInterval": 10_000, "transactionOpBatchInterval": 3_600_000,
    })),
    RealScenario("B11", b11, ServerLayout(links=True)),
    RealScenario("B12", b12, ServerLayout(links=True)),
    RealScenario("B13", b13),
)  # fmt: skip
