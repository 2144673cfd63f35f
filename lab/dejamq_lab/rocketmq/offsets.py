"""Scenarios of the family O: that a message was done did not reach the place where the next owner reads."""

import re
import shutil

from dejamq_lab.rocketmq.collecting import Causes
from dejamq_lab.rocketmq.links import MEMBERS_CHANGED, PULL, UPDATE_OFFSET
from dejamq_lab.rocketmq.programs import ClientProgram
from dejamq_lab.rocketmq.scenario import BOTH_JAVA, RealScenario
from dejamq_lab.rocketmq.servers import CLUSTER, ServerLayout
from dejamq_lab.rocketmq.stage import GROUP, TOPIC, TRACE_S, RocketMQStage

FIRST_OFFSETS_S = 10
"""After its start a client tells its offsets for the first time."""
NEVER = 3_600_000
LOWERED = "update consumer offset less than store"


def o1(stage: RocketMQStage) -> Causes:
    """A member is killed in the middle of a message; another one gets its queues."""
    if stage.client is ClientProgram.GO:
        return _o1_go(stage)
    one = stage.consumer("billing-1", "slow=order-5:600000", "instance=m")
    stage.send(12)
    one.wait("got", "order-5")
    stage.sleep(TRACE_S + 2, "the member tells its offsets")
    stage.snapshot()
    queue = next(int(line.split()[5]) for line in one.said() if " got order-5 " in line)
    two = stage.consumer("billing-2", "instance=a" if queue else "instance=z")  # it gets the other queue
    stage.sleep(3, "the members share the queues")
    one.kill()
    two.wait("got", "order-5")
    stage.traces()
    two.stop()
    return {"order-5": ["O1"], "*": ["O7"]}


def _o1_go(stage: RocketMQStage) -> Causes:
    """The Go client has told its offsets once before it is killed, and its successor comes then."""
    stage.send(12)
    one = stage.consumer("billing-1", "slow=order-5:600000")
    one.wait("got", "order-5")
    stage.sleep(FIRST_OFFSETS_S + 3, "the member tells its offsets")
    one.kill()
    two = stage.consumer("billing-2")
    two.wait("got", "order-5")
    stage.sleep(TRACE_S + 6, "clients send their traces")
    two.stop()
    return {"order-5": ["O1"], "*": ["O7"]}


def o1_alone(stage: RocketMQStage) -> Causes:
    """The only member is killed in the middle of a message, and started again."""
    one = stage.consumer("billing-1", "slow=order-5:600000")
    stage.send(12)
    one.wait("got", "order-5")
    stage.sleep(TRACE_S + 2, "the member tells its offsets")
    one.kill()
    two = stage.consumer("billing-2")
    two.wait("got", "order-5")
    stage.traces()
    two.stop()
    return {"order-5": ["O1"], "*": ["O7"]}


def o2(stage: RocketMQStage) -> Causes:
    """Offsets that a member tells are lost on the way, until it ends in order."""
    stage.send(12)
    stage.collect()
    one = stage.consumer("billing-1", "work=500")
    one.wait("done", times=12)
    stage.links.lose("billing-1", UPDATE_OFFSET, PULL)
    stage.until(lambda: one.log().count("updateConsumeOffsetToBroker MessageQueue [topic=orders") >= 2, "offsets told")
    one.stop()
    stage.links.deliver()
    stage.sleep(2, "what was polled shows that they did not come")
    stage.snapshot()
    two = stage.consumer("billing-2")
    two.wait("done", times=12)
    stage.traces()
    two.stop()
    return {"*": ["O2"]}


def o3(stage: RocketMQStage) -> Causes:
    """The broker is killed before it wrote the offsets that it had taken."""
    one = stage.consumer("billing-1")
    stage.send(12)
    one.wait("done", times=12)
    stage.wait_for_offsets(12)
    stage.send(4, first=12, name="orders-2")
    one.wait("done", times=16)
    stage.snapshot()
    one.stop()
    stage.servers.broker.kill()
    stage.servers.broker.again()
    two = stage.consumer("billing-2")
    two.wait("got", times=1)
    stage.traces()
    two.stop()
    return {"*": ["O3"]}


def o4(stage: RocketMQStage) -> Causes:
    """The broker's file of offsets is empty at its start, so it takes the one of before."""
    one = stage.consumer("billing-1")
    stage.send(4)
    one.wait("done", times=4)
    stage.wait_for_offsets(4)
    stage.send(8, first=4, name="orders-2")
    one.wait("done", times=12)
    stage.traces()
    one.stop()
    broker = stage.servers.broker
    broker.stop()
    (broker.store / "config" / "consumerOffset.json").write_bytes(b"")
    broker.again()
    two = stage.consumer("billing-2")
    two.wait("got", times=8)
    stage.traces()
    two.stop()
    return {"*": ["O4"]}


def o7(stage: RocketMQStage) -> Causes:
    """A handler hangs; messages behind it are done, and cannot be committed. Then the member is killed."""
    one = stage.consumer("billing-1", "slow=order-1:600000")
    stage.send(16)
    one.wait("done", times=15)
    stage.sleep(TRACE_S + 12, "the member tells its offsets")
    stage.snapshot()
    one.kill()
    two = stage.consumer("billing-2")
    two.wait("got", times=2)
    stage.traces()
    two.stop()
    return {"order-1": ["O1"], "*": ["O7"]}


def o8(stage: RocketMQStage) -> Causes:
    """A member does not hear that another one joined, which asks the broker first."""
    one = stage.consumer("billing-1", "instance=one", f"persist={NEVER}", "work=3000")
    stage.sleep(FIRST_OFFSETS_S + 2, "the member tells its offsets once, and never again")
    maker = stage.producer(12)
    one.wait("done", times=12)
    stage.links.lose("billing-1", MEMBERS_CHANGED, PULL)  # a pull would bring its offset along
    two = stage.consumer("billing-2", "instance=two")
    two.wait("done", times=6)
    stage.until(
        lambda: "remove unnecessary mq, MessageQueue [topic=orders" in one.log(), "the first member gives a queue up"
    )
    stage.links.deliver()
    stage.traces()
    maker.stop()
    two.stop()
    one.stop()
    return {"*": ["O8"]}


def o9(stage: RocketMQStage) -> Causes:
    """A second member joins while the first one handles a message of a queue that it must give up."""
    one = stage.consumer("billing-1", "work=15000")
    stage.send(2)
    one.wait("got", times=2)
    stage.sleep(2, "its handlers work")
    two = stage.consumer("billing-2")
    two.wait("got")
    one.wait("done", times=2)
    stage.traces()
    two.stop()
    one.stop()
    return {"*": ["O9"]}


def o10(stage: RocketMQStage) -> Causes:
    """A member is told to end while its handler works, and does not wait for it."""
    one = stage.consumer("billing-1", "slow=order-5:600000")
    stage.send(12)
    one.wait("got", "order-5")
    stage.sleep(TRACE_S + 2, "the member tells its offsets")
    one.stop()
    two = stage.consumer("billing-2")
    two.wait("got", "order-5")
    stage.traces()
    two.stop()
    return {"order-5": ["O10", "L1"], "*": ["O7"]}


def o12(stage: RocketMQStage) -> Causes:
    """A suspended member tells its old offsets every 5 s; the member that has the queue by now is killed."""
    log = stage.servers.broker.log("broker.log")
    one = stage.consumer("billing-1", "instance=one")
    stage.send(8)
    one.wait("done", times=8)
    stage.wait_for_offsets(8)
    one.tell("p")
    stage.sleep(17, "a pull under way would still bring it messages")
    two = stage.consumer("billing-2", "instance=two")
    stage.send(8, first=8, name="orders-2")
    two.wait("done", times=4)
    stage.until(lambda: bool(re.search(r"updateConsumeOffsetToBroker MessageQueue \[topic=orders.*\] 8\b", two.log())),
                "the second member has told its offset")  # fmt: skip
    stage.until(stage.told(log, LOWERED), "the first member lowers it")
    two.kill()
    stage.sleep(6, "the first member tells its offset once more")
    three = stage.consumer("billing-3", "instance=three")
    three.wait("done", times=4)
    stage.traces()
    three.stop()
    one.stop()
    return {"*": ["O12"]}


def o15(stage: RocketMQStage) -> Causes:
    """An operator deletes the group with its offsets, and its next member begins at the beginning."""
    one = stage.consumer("billing-1")
    stage.send(8)
    one.wait("done", times=8)
    stage.wait_for_offsets(8)
    stage.traces()
    one.stop()
    stage.snapshot()
    stage.admin(f"deleteSubGroup -c {CLUSTER} -g {GROUP} -r true")
    two = stage.consumer("billing-2")
    two.wait("done", times=8)
    stage.traces()
    two.stop()
    return {"*": ["O15"]}


def o17(stage: RocketMQStage) -> Causes:
    """An operator sets the group back to a time before the messages were sent."""
    one = stage.consumer("billing-1")
    stage.send(8)
    one.wait("done", times=8)
    stage.sleep(TRACE_S + 6, "the member tells its offsets")
    stage.admin(f"resetOffsetByTime -g {GROUP} -t {TOPIC} -s 0 -f true")
    one.wait("done", times=16)
    stage.sleep(TRACE_S + 6, "the member tells its offsets")
    one.stop()
    return {"*": ["O17"]}


def o20(stage: RocketMQStage) -> Causes:
    """A broadcasting member loses the file of its offsets, as with a container's disk, and begins at the beginning."""
    one = stage.consumer("billing-1", "broadcast=true", "instance=billing")
    stage.send(8)
    one.wait("done", times=8)
    stage.sleep(TRACE_S + 6, "the member writes its offsets")
    one.stop()
    for folder in one.home.rglob(".rocketmq_offsets"):
        shutil.rmtree(folder)
    two = stage.consumer("billing-2", "broadcast=true", "instance=billing")  # the same client in a new container
    two.wait("done", times=8)
    stage.traces()
    two.stop()
    return {"*": ["O20"]}


SLOW_FILE = ServerLayout(settings={"flushConsumerOffsetInterval": 60_000})
"""Offsets that a broker has taken wait longer in its memory."""
ALL = (
    RealScenario("O1", o1, clients=(*BOTH_JAVA, ClientProgram.GO)),
    RealScenario("O1-alone", o1_alone),
    RealScenario("O2", o2, ServerLayout(links=True)),
    RealScenario("O3", o3, SLOW_FILE),
    RealScenario("O4", o4, ServerLayout(settings={"flushConsumerOffsetInterval": 45_000})),
    RealScenario("O7", o7),
    RealScenario("O8", o8, ServerLayout(links=True)),
    RealScenario("O9", o9, clients=BOTH_JAVA),
    RealScenario("O10", o10),
    RealScenario("O12", o12),
    RealScenario("O15", o15),
    RealScenario("O17", o17),
    RealScenario("O20", o20),
)
