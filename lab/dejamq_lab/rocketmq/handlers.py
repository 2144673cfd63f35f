"""Scenarios of the family L, in which the handler or the design asks for it, and the one without any cause."""

import re

from dejamq_lab.rocketmq.collecting import Causes
from dejamq_lab.rocketmq.scenario import RealScenario
from dejamq_lab.rocketmq.stage import GROUP, TOPIC, RocketMQStage


def healthy(stage: RocketMQStage) -> Causes:
    """Two members share the work; one leaves in order, the other one goes on."""
    one, two = stage.consumer("billing-1"), stage.consumer("billing-2")
    stage.send(20)
    stage.traces()
    one.stop()
    stage.send(10, first=20, name="orders-2")
    stage.traces()
    two.stop()
    return {}


def l1(stage: RocketMQStage) -> Causes:
    """A handler fails once, and its message comes again ten seconds later."""
    one = stage.consumer("billing-1", "fail=order-3")
    stage.send(8)
    one.wait("got", "order-3", times=2)
    stage.traces()
    one.stop()
    return {"*": ["L1"]}


def l2(stage: RocketMQStage) -> Causes:
    """A handler of lists fails for one message, and the whole list comes again."""
    stage.send(8)
    one = stage.consumer("billing-1", "batch=4", "fail=order-3")
    one.wait("got", "order-3", times=2)
    stage.traces()
    one.stop()
    return {"*": ["L2"]}


def l3(stage: RocketMQStage) -> Causes:
    """A handler in order suspends its queue for a second."""
    one = stage.consumer("billing-1", "orderly=true", "fail=order-3")
    stage.send(8)
    one.wait("got", times=9)
    stage.traces()
    one.stop()
    return {"*": ["L3"]}


def l5(stage: RocketMQStage) -> Causes:
    """A program interrupts its own handler, and the message comes again ten seconds later."""
    one = stage.consumer("billing-1", "slow=order-3:150000", "interrupt=order-3:1000")
    stage.send(8)
    one.wait("got", "order-3", times=2)
    stage.traces()
    one.stop()
    return {"*": ["L5"]}


def l6(stage: RocketMQStage) -> Causes:
    """A handler in order commits by itself; it rolls back, and what it had not committed comes again."""
    one = stage.consumer("billing-1", "orderly=true", "commit=order-6,order-7", "fail=order-4")
    stage.send(8)
    one.wait("got", "order-4", times=2)
    one.wait("done", "order-7")
    one.wait("done", "order-6")
    stage.traces()
    one.stop()
    return {"*": ["L6"]}


def l7(stage: RocketMQStage) -> Causes:
    """An operator has one member handle a message once more."""
    one = stage.consumer("billing-1")
    maker = stage.send(8)
    one.wait("done", times=8)
    stage.traces()
    message = next(line.split()[-1] for line in maker.said() if " sent order-3 " in line)
    client = next(iter(re.findall(r"ClientID:([^,\s]+#\d+)", one.log())))
    stage.admin(f"queryMsgById -t {TOPIC} -i {message} -g {GROUP} -d {client}")
    one.wait("done", "order-3", times=2)
    stage.traces()
    one.stop()
    return {"*": ["L7"]}


def l8(stage: RocketMQStage) -> Causes:
    """Each member of a broadcasting group has every message."""
    # on one machine they would have one client id, and share a file of offsets
    one = stage.consumer("billing-1", "broadcast=true", "instance=one")
    two = stage.consumer("billing-2", "broadcast=true", "instance=two")
    stage.send(8)
    one.wait("done", times=8)
    two.wait("done", times=8)
    stage.traces()
    one.stop()
    two.stop()
    return {"*": ["L8"]}


def l9(stage: RocketMQStage) -> Causes:
    """Two groups read one topic."""
    one, two = stage.consumer("billing-1"), stage.consumer("mail-1", group="mail")
    stage.send(8)
    one.wait("done", times=8)
    two.wait("done", times=8)
    stage.traces()
    one.stop()
    two.stop()
    return {"*": ["L9"]}


ALL = (
    RealScenario("healthy", healthy),
    RealScenario("L1", l1),
    RealScenario("L2", l2),
    RealScenario("L3", l3),
    RealScenario("L5", l5),
    RealScenario("L6", l6),
    RealScenario("L7", l7),
    RealScenario("L8", l8),
    RealScenario("L9", l9),
)
