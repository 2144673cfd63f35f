"""Scenarios of the family R: a queue has two owners at once."""

from dejamq_lab.machines.rocketmq import Failed
from dejamq_lab.rocketmq.collecting import Causes
from dejamq_lab.rocketmq.machine import Machine
from dejamq_lab.rocketmq.scenario import RealScenario
from dejamq_lab.rocketmq.servers import ServerLayout
from dejamq_lab.rocketmq.stage import TRACE_S, RocketMQStage

TWO = ("broker-a", "broker-b")
GONE = "SCAN: remove expired channel from ConsumerManager consumerTable"


def both_got(one: Machine, two: Machine) -> set[str]:
    """Keys that both were given."""
    return {*one.keys("got")} & {*two.keys("got")}


def r1(stage: RocketMQStage) -> Causes:
    """Two members ask two name servers, of which one does not know the second broker."""
    first, second = (server.address for server in stage.servers.namesrvs)
    one = stage.consumer("billing-1", "instance=one", namesrv=second)
    two = stage.consumer("billing-2", "instance=two", namesrv=first)
    stage.sleep(5, "the members share the queues")
    stage.send(32)
    stage.until(lambda: len(both_got(one, two)) >= 4, "both have messages of two queues")
    stage.traces()
    one.stop()
    two.stop()
    return {"*": ["R1"]}


def r2(stage: RocketMQStage) -> Causes:
    """A member cannot reach the second broker, which the other one asks who the members are."""
    stage.links.cut("billing-1", "broker-b")
    one = stage.consumer("billing-1", "instance=one")
    two = stage.consumer("billing-2", "instance=two")
    maker = stage.producer(600, "pause=300")
    stage.until(lambda: len(both_got(one, two)) >= 2, "both have messages of one queue")
    maker.stop()
    stage.traces()
    two.stop()
    one.stop()
    return {"*": ["R2"]}


def r3(stage: RocketMQStage) -> Causes:
    """Two members share the queues by different strategies."""
    one = stage.consumer("billing-1", "instance=one")
    two = stage.consumer("billing-2", "instance=two", "strategy=circle")
    stage.sleep(3, "the members share the queues")
    stage.send(12)
    stage.until(lambda: len(both_got(one, two)) >= 3, "both have the messages of one queue")
    stage.traces()
    one.stop()
    two.stop()
    return {"*": ["R3"]}


def r4(stage: RocketMQStage) -> Causes:
    """Two processes use one instance name."""
    one, two = stage.consumer("billing-1", "instance=billing"), stage.consumer("billing-2", "instance=billing")
    stage.send(8)
    one.wait("got", times=4)  # each takes itself for the first of two members, and nobody has the other queue
    two.wait("got", times=4)
    stage.traces()
    one.stop()
    two.stop()
    return {"*": ["R4"]}


def r5(stage: RocketMQStage) -> Causes:
    """A member with messages at hand is suspended: it goes on handling them, and another one gets a queue of it."""
    one = stage.consumer("billing-1", "instance=one", "threads=1", "work=2000")
    stage.send(12)
    one.wait("got", times=2)
    one.tell("p")
    two = stage.consumer("billing-2", "instance=two")
    one.wait("done", times=12)
    stage.traces()
    two.stop()
    one.stop()
    return {"*": ["R5"]}


def r6(stage: RocketMQStage) -> Causes:
    """A member is frozen until the broker forgets it, and goes on with the messages at hand when it thaws."""
    log = stage.servers.broker.log("broker.log")
    one = stage.consumer("billing-1", "instance=one", "threads=1", "work=2000", "heartbeat=2000")
    stage.send(12)
    one.wait("got", times=3)
    stage.traces()
    forgotten = stage.told(log, GONE)
    with one.frozen():
        stage.until(forgotten, "the broker forgets the member")
        two = stage.consumer("billing-2", "instance=two", "heartbeat=2000")
        two.wait("done", times=4)
        stage.traces()
    stage.until(lambda: len(both_got(one, two)) >= 1, "both have a message")
    stage.sleep(TRACE_S + 6, "it goes on until it shares the queues out anew")
    two.stop()
    one.stop()
    return {"*": ["R6"]}


def _hung(stage: RocketMQStage, work_ms: int) -> tuple[Machine, str]:
    """A member in order whose handler takes long for order-1, and a name by which another one gets that queue."""
    one = stage.consumer("billing-1", "instance=m", "orderly=true", f"slow=order-1:{work_ms}", "heartbeat=2000")
    stage.send(8)
    one.wait("got", "order-1")
    queue = next(int(line.split()[5]) for line in one.said() if " got order-1 " in line)
    return one, "instance=z" if queue else "instance=a"


def _taken(stage: RocketMQStage, one: Machine, two: Machine) -> None:
    """The other member has the message while the handler of the first one still works."""
    two.wait("got", "order-1")
    if "order-1" in one.keys("done"):
        raise Failed("the handler of the first member ended before the other one had the queue")
    two.wait("done", "order-1")
    one.wait("done", "order-1")
    stage.sleep(TRACE_S + 6, "both tell their offsets")
    two.stop()
    one.stop()


def r9(stage: RocketMQStage) -> Causes:
    """A member in order is cut off while its handler works, and its lock ends; the next member gets it."""
    one, name = _hung(stage, 150_000)
    stage.traces()
    stage.links.cut("billing-1", "broker-a")
    two = stage.consumer("billing-2", name, "orderly=true", "heartbeat=2000")
    two.wait("got", "order-1")
    stage.links.heal("billing-1", "broker-a")
    _taken(stage, one, two)
    return {"*": ["R9"]}


def r10(stage: RocketMQStage) -> Causes:
    """A broker that was started again knows no lock, and gives a queue away whose owner's handler works."""
    one, name = _hung(stage, 150_000)
    stage.traces()
    stage.links.cut("billing-1", "broker-a")  # else it may be the first to ask for its lock again
    stage.servers.broker.kill()
    stage.servers.broker.again()
    two = stage.consumer("billing-2", name, "orderly=true", "heartbeat=2000")
    two.wait("got", "order-1")
    stage.links.heal("billing-1", "broker-a")
    _taken(stage, one, two)
    return {"*": ["R10"]}


def r11(stage: RocketMQStage) -> Causes:
    """A member has to give a queue up while its handler works. It waits for 20 s, and gives its lock back then."""
    one, name = _hung(stage, 120_000)
    stage.traces()
    two = stage.consumer("billing-2", name, "orderly=true", "heartbeat=2000")
    _taken(stage, one, two)
    return {"*": ["R11"]}


def r13(stage: RocketMQStage) -> Causes:
    """Two programs assign the same queues to themselves."""
    one, two = stage.reader("billing-1"), stage.reader("billing-2")
    stage.send(8)
    one.wait("done", times=8)
    two.wait("done", times=8)
    stage.sleep(TRACE_S + 6, "both tell their offsets")
    one.stop()
    two.stop()
    return {"*": ["R13"]}


ALL = (
    RealScenario("R1", r1, ServerLayout(TWO, namesrvs=2, unknown={"broker-b": "namesrv-1"}), queues=4),
    RealScenario("R2", r2, ServerLayout(TWO, links=True, of={"broker-b": {"traceTopicEnable": "false"}})),
    RealScenario("R3", r3, queues=4),
    RealScenario("R4", r4),
    RealScenario("R5", r5),
    RealScenario("R6", r6, ServerLayout(settings={"channelExpiredTimeout": 10_000})),
    RealScenario("R9", r9, ServerLayout(links=True)),
    RealScenario("R10", r10, ServerLayout(links=True)),
    RealScenario("R11", r11),
    RealScenario("R13", r13),
)
