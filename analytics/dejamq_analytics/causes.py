"""What each cause means, in one sentence for people, and what to change. Ids as in the catalogue of causes."""

from typing import NamedTuple


class Cause(NamedTuple):
    title: str
    story: str
    change: str
    setting: str


CAUSES = {
    "O1": Cause(
        "done, but the offset never left",
        "The consumer ended before it sent the offset of this message to the broker (or before the handler was done). "
        "Its successor began at the last offset the broker had.",
        "Stop consumers with SIGTERM so that they drain. Persist more often, or keep the effect and its mark in one "
        "transaction, so that a second delivery has no effect.",
        "persist_consumer_offset_interval_ms (RocketMQ: persistConsumerOffsetInterval)",
    ),
    "O2": Cause(
        "the offset was sent and got lost",
        "The consumer sent the offset one way and it never reached the broker before the queue found a new owner.",
        "Stop consumers with SIGTERM: their last offsets are awaited. Make the handler idempotent.",
        "consumer_progress_timeout_ms",
    ),
    "O3": Cause(
        "the broker died before it wrote the offset down",
        "The broker had taken the offset and kept it in memory. It was killed before it wrote its offsets to disk, and "
        "its next start told the new owner what the file had.",
        "Stop brokers with SIGTERM: they write their offsets. Let them write more often.",
        "flush_consumer_offset_interval_ms (RocketMQ: flushConsumerOffsetInterval)",
    ),
    "O4": Cause(
        "the offset file was damaged",
        "The broker could not read its file of offsets at a start and took the generation before it, which was older.",
        "Find out what damaged the file: the disk, a copy while the broker ran, a hand. Use a sound disk.",
        "flush_consumer_offset_interval_ms (RocketMQ: flushConsumerOffsetInterval)",
    ),
    "O5": Cause(
        "a slave answered with older offsets",
        "The master had the offset. A slave, which copies offsets every 10 s, became the master or was asked in its "
        "absence, and had an older one.",
        "Keep consumers running when a slave takes over: they commit again within 5 s. Copy more often.",
        "slave_sync_interval_ms",
    ),
    "O6": Cause(
        "the master came back with older offsets",
        "While the master was away consumers read from a slave and committed there. The master came back with its own "
        "offsets, and the slave takes those.",
        "Keep the consumers running until the master is back: they commit to it again within 5 s.",
        "slave_sync_interval_ms",
    ),
    "O7": Cause(
        "done above an unfinished message",
        "The message was done, but one with a lower offset in its queue was not. Only the lowest unfinished offset is "
        "recorded, so everything above it came again.",
        "Let no message block its queue: limit how far a consumer may run ahead, and how long a handler may take.",
        "consume_concurrently_max_span (RocketMQ: consumeConcurrentlyMaxSpan), consume_timeout_ms (consumeTimeout)",
    ),
    "O8": Cause(
        "the new owner asked before the old one had told",
        "The queue moved between live consumers. The new owner read the offset from the broker before the old owner's "
        "last offset arrived there.",
        "Let few consumers come and go while traffic runs, and make the handler idempotent.",
        "persist_consumer_offset_interval_ms (RocketMQ: persistConsumerOffsetInterval)",
    ),
    "O9": Cause(
        "taken away while the handler ran",
        "The queue moved to another owner while the handler was still busy, so its result was thrown away.",
        "Let few consumers come and go while traffic runs, keep handlers short, and make them idempotent.",
        "rebalance_wait_interval_ms",
    ),
    "O10": Cause(
        "stopped without waiting for the handler",
        "The consumer was closed before the handler had ended, so its result could no longer be recorded.",
        "Give handlers the time they need when a consumer stops.",
        "await_termination_ms (RocketMQ: awaitTerminationMillisWhenShutdown)",
    ),
    "O11": Cause(
        "the lock was free before the offset had come",
        "An ordered consumer gave its lock back before the broker had looked at its last offset. The next owner got it "
        "and read the older offset.",
        "Let consumers drain when they stop: they wait for the broker's word on the offset before they unlock.",
        "shutdown_mode, await_termination_ms (RocketMQ: awaitTerminationMillisWhenShutdown)",
    ),
    "O12": Cause(
        "somebody else set the offset lower",
        "Another consumer of the group, which had owned the queue before or still believed so, committed its own older "
        "offset over the newer one. The next owner began there.",
        "Let the broker refuse lower offsets, and find out why two consumers owned the queue.",
        "refuse_lower_offsets",
    ),
    "O13": Cause(
        "the broker was away when the offset had to be kept",
        "The broker left the route, so the consumer gave up the queue and could not tell its offset; when the broker "
        "came back, the same consumer began at the last offset on disk.",
        "Keep broker outages short, or let the broker write its offsets more often.",
        "flush_consumer_offset_interval_ms (RocketMQ: flushConsumerOffsetInterval)",
    ),
    "O14": Cause(
        "unsubscribed before the offset was sent",
        "The program unsubscribed from the topic, which gives its queues up without their last offset. Whoever had "
        "them next, perhaps the same program, began at the one before.",
        "Before you unsubscribe wait as long as the timer takes, or close the consumer instead. Persist more often.",
        "persist_consumer_offset_interval_ms (RocketMQ: persistConsumerOffsetInterval)",
    ),
    "O17": Cause(
        "sent back on purpose",
        "An operator reset or cloned the group's offset, or the program sought one, so everything from there on came "
        "again, as asked.",
        "Nothing: see who gave the command. What handlers were at is discarded, so even that must bear coming twice.",
        "",
    ),
    "O15": Cause(
        "the broker had no offset any more",
        "The group had consumed the queue, and its offset was gone when the next owner asked: deleted, or lost with "
        "its file. So it began at the beginning.",
        "Do not delete a group's offsets while somebody may still consume; keep the broker's config folder.",
        "consume_from (RocketMQ: consumeFromWhere)",
    ),
    "O16": Cause(
        "the offset was outside of the queue",
        "The consumer asked for an offset that the queue did not have; the broker corrected it to a lower one, and the "
        "messages from there on came again.",
        "Find out why the queue ends earlier than it did: a lost or replaced store, or offsets of another cluster.",
        "",
    ),
    "O18": Cause(
        "polled, and not committed before the queue went",
        "To a lite pull consumer a message is done with the poll after it, is committed into memory by a later poll, "
        "and leaves with the timer after that. The queue was given up in between.",
        "Commit explicitly, and wait for it, before you close or let a member join; or keep effect and offset in one "
        "transaction.",
        "auto_commit_interval_ms (RocketMQ: autoCommitIntervalMillis), persist_consumer_offset_interval_ms",
    ),
    "O19": Cause(
        "the program began where its own notes said",
        "The program keeps its offsets itself. It ended before it had noted this message as done, and its next start "
        "sought to the older place.",
        "Write the effect and the offset in one transaction, and begin at that offset.",
        "",
    ),
    "O20": Cause(
        "the broadcasting member's file of offsets was older or gone",
        "A broadcasting member keeps its offsets in a file of its own. At its next start the file was lost, damaged, "
        "overwritten by another process of the same name, or not yet written.",
        "Give each member a client id and a folder that outlive its container, and a folder to one process only.",
        "client_id, local_offset_store_dir (RocketMQ: rocketmq.client.localOffsetStoreDir)",
    ),
    "P1": Cause(
        "the producer tried again and both were stored",
        "The first try was stored, but its answer never arrived, so the producer sent the message to another broker.",
        "Set the retries to 0 and decide in the application, or de-duplicate by message id.",
        "retry_times_when_send_failed (RocketMQ: retryTimesWhenSendFailed)",
    ),
    "P2": Cause(
        "a send nobody waited for was tried again and both were stored",
        "As P1, for a message that the program submitted without waiting: the producer tried again by itself.",
        "Set the retries to 0 and decide where the future fails, or de-duplicate by message id.",
        "retry_times_when_send_async_failed (RocketMQ: retryTimesWhenSendAsyncFailed)",
    ),
    "P3": Cause(
        "stored less durably than asked, so sent to another broker too",
        "The broker had stored the message and said that its disk or its slave had not confirmed it in time. The "
        "producer was told to send to another broker then, and both copies are there.",
        "Leave the setting off: the caller gets the status and can decide.",
        "retry_another_broker_when_not_store_ok (RocketMQ: retryAnotherBrokerWhenNotStoreOK)",
    ),
    "P5": Cause(
        "the application sent it twice",
        "Two calls of send carried one message: the application repeated a send whose outcome it did not know, or was "
        "itself called twice.",
        "Give each business event one stable key and de-duplicate by it, or send from an outbox.",
        "keys of the message, journal_business_key",
    ),
    "P6": Cause(
        "a whole batch was tried again and stored twice",
        "The batch was stored, but its answer did not arrive, or was not good enough. A batch goes again as a whole: "
        "every message of it is there twice.",
        "Send smaller batches, set the retries to 0 and decide in the application, or de-duplicate by message id.",
        "retry_times_when_send_failed (RocketMQ: retryTimesWhenSendFailed)",
    ),
    "P7": Cause(
        "the transaction was committed twice",
        "The broker does not look whether a transaction has ended: the program's own commit came after that of a "
        "check, or the answers to two checks were commits. Each stored the message once more.",
        "Let the broker commit once, let local transactions end within 6 s, and do not try half messages again.",
        "transaction_finish_once, transaction_timeout_ms (RocketMQ: transactionTimeOut), retry_times_when_send_failed",
    ),
    "P8": Cause(
        "the mark of the ended transaction was lost",
        "The broker was killed after it had stored the committed message and before it had stored the mark that its "
        "transaction has ended. So it asked again after its start, and committed again.",
        "Let the broker store the mark behind the message, or gather marks for a shorter time.",
        "transaction_op_with_commit, transaction_op_batch_interval_ms (RocketMQ: transactionOpBatchInterval)",
    ),
    "P10": Cause(
        "a request was tried again, and two did what it asks",
        "The request was stored, but the broker's answer never arrived, so the producer sent it again. Both were "
        "handled, and both handlers replied; the first reply counts.",
        "Make the handler idempotent, or set the retries to 0 and ask again in the application.",
        "retry_times_when_send_async_failed (RocketMQ: retryTimesWhenSendAsyncFailed)",
    ),
    "B1": Cause(
        "the broker crashed and delivered a delayed message again",
        "A delayed or retried message was delivered, and the broker ended before it wrote down how far it had come. "
        "After the restart it delivered from the older place again.",
        "Stop brokers with SIGTERM, let them write their delay progress more often, and make the handler idempotent.",
        "flush_delay_offset_interval_ms (RocketMQ: flushDelayOffsetInterval)",
    ),
    "B2": Cause(
        "a slave became the master and delivered a delayed message again",
        "A delayed or retried message was delivered by the master. The slave that became the master had an older "
        "progress of the delay level, and delivered from there.",
        "Copy more often, check what a promotion would lose, and make the handler idempotent.",
        "slave_sync_interval_ms",
    ),
    "B11": Cause(
        "one failure was given back twice",
        "The broker stored the next try, but its answer never arrived, so the consumer sent the message to the retry "
        "topic itself. Each of the two retries goes its own way.",
        "Make the handler idempotent: RocketMQ's clients do the same.",
        "consumer_progress_timeout_ms",
    ),
    "B13": Cause(
        "the handler took longer than the consume time-out",
        "The handler ran for so long that the consumer gave the message back for another try, and then it ended well. "
        "Nothing stops a handler that runs.",
        "Let the time-out be longer than the slowest handler, or make the handler give up in time.",
        "consume_timeout_ms (RocketMQ: consumeTimeout)",
    ),
    "R1": Cause(
        "name servers disagreed about the queues",
        "Two members of the group shared out different lists of queues, because their name servers knew different "
        "brokers, or one had its route from before. So both took this queue, and others may have had nobody.",
        "Heal the link between broker and name server. With graceful hand-over a queue has one owner whatever the "
        "routes are.",
        "graceful_handover, poll_name_server_interval_ms (RocketMQ: pollNameServerInterval)",
    ),
    "R2": Cause(
        "brokers disagreed about the members",
        "Every round asks any one broker who is in the group, and two brokers gave different lists: a member was cut "
        "off from one of them. So two members took this queue.",
        "Heal the link between consumer and broker. With graceful hand-over a queue has one owner whatever the lists.",
        "graceful_handover",
    ),
    "R3": Cause(
        "members shared out by different rules",
        "Two members of one group allocate with different strategies, so both took this queue, for as long as they "
        "live.",
        "Give all members of a group the same strategy; the broker warns of members that differ.",
        "allocation (RocketMQ: allocateMessageQueueStrategy)",
    ),
    "R4": Cause(
        "two processes had one client id",
        "Two consumers were started with the same client id. The group took them for one member, so both took the same "
        "queues, and a share of the others had nobody.",
        "Leave client_id alone, or make it different for each process.",
        "client_id (RocketMQ: instanceName, clientIP)",
    ),
    "R5": Cause(
        "a suspended consumer kept its queues",
        "The program suspended the consumer. It allocated no more, while what it had fetched was still handled, and "
        "another member took the queue.",
        "Close a consumer instead of suspending it while others come and go.",
        "",
    ),
    "R6": Cause(
        "the owner was frozen or cut off",
        "The consumer did not run, or reached no broker, for so long that others took its queues. It went on with what "
        "it had fetched.",
        "Make the handler idempotent, or let its sink refuse an owner that lost the queue. Avoid long pauses.",
        "",
    ),
    "R7": Cause(
        "the owner dropped the queue because it did not pull",
        "The consumer had not pulled from the queue for two minutes, took that for a fault of its own, dropped the "
        "queue and opened it anew. What handlers were at counted for nothing and was fetched again.",
        "Find out what stops the pulls: a frozen process, a loop that is blocked. Or allow more time.",
        "pull_max_idle_time_ms (RocketMQ: pullMaxIdleTime)",
    ),
    "R8": Cause(
        "the owner lost the queue and had it again",
        "Rounds of allocation took the queue from the consumer and gave it back to it, while its handlers ran on. The "
        "new ownership fetched the same messages, so two handlers of one process were at them at once.",
        "Find out why the members or the queues flap. With graceful hand-over a queue is given up only when its "
        "handlers have ended.",
        "graceful_handover",
    ),
    "R9": Cause(
        "the lock ended while the handler ran",
        "The owner of an ordered queue could not renew its lock: it was cut off or frozen. The broker waited for a "
        "minute and gave the queue to another member, while a handler of the first one still ran.",
        "Let handlers end sooner than locks do, or let the sink refuse an owner whose lock has ended.",
        "rebalance_lock_max_live_time_ms (RocketMQ: lockMaxLiveTime)",
    ),
    "R10": Cause(
        "the lock was forgotten, or there was a second one",
        "Locks are in the memory of one broker. It was started again, or another replica took its place, and gave the "
        "queue to the next member who asked, while the first one still held its lock and worked.",
        "Stop and start brokers while no members come and go, and never let two replicas be the master.",
        "",
    ),
    "R11": Cause(
        "the lock was given back under a running handler",
        "An ordered queue moved on while its handler ran. The owner waited, and then gave the lock back all the same, "
        "so that the next owner's handler was at the same message at once.",
        "Let the owner wait for as long as a handler may take.",
        "unlock_delay_time_ms (RocketMQ: unlockDelayTimeMills)",
    ),
    "R12": Cause(
        "a clock jumped",
        "The time of day of a process was set forward. Everything that is counted by it was too old at once: locks, "
        "memberships, or the last pull of a queue.",
        "Let clocks be slewed instead of set, or count ages by the clock that never jumps.",
        "age_clock",
    ),
    "R13": Cause(
        "two consumers chose the same queue themselves",
        "Both programs said which queues they take, and both took this one. Nobody shares them out then, and each "
        "commits over the other's offset.",
        "Share the queues out without overlap, or subscribe instead of assigning.",
        "",
    ),
    "L1": Cause(
        "the handler asked for a retry",
        "The handler failed or asked for redelivery, so the message came again after a delay, as asked.",
        "Nothing, if the handler has no effect before it fails.",
        "max_reconsume_times (RocketMQ: maxReconsumeTimes)",
    ),
    "L2": Cause(
        "one of a list failed, and the whole list came again",
        "The handler takes lists and answered that the list failed. The broker cannot know which messages of it were "
        "done, so all of them came again.",
        "Answer how far the handler came (BatchResult with ack_index), or take messages one by one.",
        "subscribe_batch, size (RocketMQ: consumeMessageBatchMaxSize, ackIndex)",
    ),
    "L4": Cause(
        "a dead letter was handled again with its list",
        "An ordered handler of lists failed. One message had no tries left and became a dead letter; another one had, "
        "so the whole list came again, the dead letter with it, and it may become one twice.",
        "Take messages one by one where they are consumed in order with a limit of tries.",
        "subscribe_batch, size (RocketMQ: consumeMessageBatchMaxSize), max_reconsume_times",
    ),
    "L5": Cause(
        "the handler was interrupted",
        "The handler was cancelled while it ran: by the end of its consumer, whose time to wait was over, or by the "
        "program. Whatever it had done by then, nobody was told, so the message came again.",
        "Give handlers the time they need when a consumer stops, and keep the effect the last thing that they do.",
        "await_termination_ms (RocketMQ: awaitTerminationMillisWhenShutdown)",
    ),
    "L6": Cause(
        "an ordered handler rolled back or never committed",
        "The consumer commits by itself (auto_commit is off). It rolled back, or ended before its next COMMIT, so "
        "everything handled since the last one came again.",
        "Commit behind each effect, or let the effects of what is not committed be undone.",
        "auto_commit (RocketMQ: ConsumeOrderlyContext.autoCommit)",
    ),
    "B12": Cause(
        "the send-back failed, so the consumer tried again by itself",
        "The handler failed and no broker took the message back, so the consumer delivered it to itself again.",
        "Nothing, if the handler has no effect before it fails.",
        "consume_retry_delay_ms",
    ),
    "L3": Cause(
        "an ordered handler suspended its queue",
        "An ordered handler asked for a pause and got the message again, as order demands.",
        "Use batches of one, and limit the tries.",
        "max_reconsume_times",
    ),
    "L8": Cause(
        "each member of a broadcasting group has it",
        "The group consumes in the broadcasting model: each of its members gets every message, so what each of them "
        "does is done as often as there are members.",
        "Nothing, if that is meant. Else consume in the clustering model, in which one member gets a message.",
        "model (RocketMQ: messageModel)",
    ),
    "L9": Cause(
        "several groups or topics have the event",
        "Several groups read the topic, and each of them got the message; or the program sent one event to several "
        "topics. Each is as meant, and what they all do is done several times.",
        "Nothing, if that is meant. Else de-duplicate by a key of the event that all of them share.",
        "keys of the message, journal_business_key",
    ),
    "L7": Cause(
        "an operator asked for it",
        "A command had the message consumed directly, without moving any offset, or sent a dead letter again.",
        "Nothing: see who gave the command.",
        "",
    ),
}
