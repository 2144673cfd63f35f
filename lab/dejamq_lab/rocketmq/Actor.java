// One actor of a scenario on a real RocketMQ: a producer or a consumer of its own Java client, with message trace on.
//
//   Actor produce NAMESRV TOPIC GROUP FIRST COUNT [OPTION=VALUE ...]
//   Actor consume NAMESRV TOPIC GROUP             [OPTION=VALUE ...]
//   Actor assign  NAMESRV TOPIC GROUP             [OPTION=VALUE ...]   all queues of the topic, chosen by itself
//
// Message number N has the key order-N. It prints a line for each message that a handler was given, for each that a
// handler is done with, and for each that was sent. A consumer ends in order when its standard input ends.
// Options of both: instance=NAME, heartbeat=MS.
// Options of a consumer: work=MS for each message, slow=KEY:MS for the first try of one, fail=KEY (its first try fails),
// strategy=circle, orderly=true, commit=KEY,KEY (in order; these are committed, nothing else is, and a failure rolls
// back), broadcast=true, batch=N, threads=N, timeout=MINUTES, persist=MS, interrupt=KEY:MS (its handler is interrupted
// then, the first time, and throws that). A p on its standard input suspends it, an r resumes it.
// Options of a producer: try=MS for one try, again=KEY (this one is sent twice), keep=MS after the last message (or
// until its standard input ends), pause=MS between messages, other=true (to another broker where the status is not ok),
// transaction=MS (in transactions whose program takes so long, and commits; so does a check).
// It compiles with the jars of RocketMQ 4.9.8 and 5.3.3.

import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;

import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.consumer.AllocateMessageQueueStrategy;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyContext;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragelyByCircle;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

public class Actor {
    static final Map<String, String> options = new HashMap<>();
    static final Set<String> failed = new HashSet<>();

    public static void main(String[] args) {
        int at = args[0].equals("produce") ? 6 : 4;
        for (; at < args.length; at++) {
            options.put(args[at].split("=", 2)[0], args[at].split("=", 2)[1]);
        }
        try {
            if (args[0].equals("produce")) {
                produce(args[1], args[2], args[3], Integer.parseInt(args[4]), Integer.parseInt(args[5]));
            } else if (args[0].equals("assign")) {
                assign(args[1], args[2], args[3]);
            } else {
                consume(args[1], args[2], args[3]);
            }
        } catch (Exception error) {  // the client's threads would keep the process
            error.printStackTrace();
            Runtime.getRuntime().halt(1);
        }
    }

    static synchronized void say(String word, Object... parts) {
        StringBuilder line = new StringBuilder(System.currentTimeMillis() + " " + word);
        for (Object part : parts) {
            line.append(' ').append(part);
        }
        System.out.println(line);
        System.out.flush();
    }

    static long number(String option, long otherwise) {
        return Long.parseLong(options.getOrDefault(option, String.valueOf(otherwise)));
    }

    static void configure(ClientConfig client, String namesrv) {
        client.setNamesrvAddr(namesrv);
        client.setMqClientApiTimeout(10_000);
        client.setHeartbeatBrokerInterval((int) number("heartbeat", 30_000));
        client.setPersistConsumerOffsetInterval((int) number("persist", 5_000));
        if (options.containsKey("instance")) {
            client.setInstanceName(options.get("instance"));
        }
    }

    // a producer

    static void produce(String namesrv, String topic, String group, int first, int count) throws Exception {
        DefaultMQProducer producer = options.containsKey("transaction")
            ? transactions(group) : new DefaultMQProducer(group, true, null);
        configure(producer, namesrv);
        producer.setSendMsgTimeout(10_000);
        producer.setRetryAnotherBrokerWhenNotStoreOK(options.containsKey("other"));
        if (options.containsKey("try")) {
            set(producer, "setSendMsgMaxTimeoutPerRequest", Integer.parseInt(options.get("try")));
        }
        producer.start();
        say("ready");
        for (int number = first; number < first + count && !ended(); number++) {
            String key = "order-" + number;
            Message message = new Message(topic, "paid", key, key.getBytes(StandardCharsets.UTF_8));
            for (int times = key.equals(options.get("again")) ? 2 : 1; times > 0; times--) {
                SendResult sent = send(producer, message);
                say("sent", key, sent.getMsgId(), sent.getMessageQueue().getQueueId(), sent.getQueueOffset(),
                    sent.getOffsetMsgId());
            }
            Thread.sleep(number("pause", 10));
        }
        long until = System.currentTimeMillis() + number("keep", 0);
        while (System.currentTimeMillis() < until && !ended()) {
            Thread.sleep(50);
        }
        producer.shutdown();
        say("end");
    }

    /** A broker that has just started refuses some, and a busy name server does not answer: nothing is stored then. */
    static SendResult send(DefaultMQProducer producer, Message message) throws Exception {
        for (int refused = 0; ; refused++) {
            try {
                return options.containsKey("transaction")
                    ? producer.sendMessageInTransaction(message, null) : producer.send(message);
            } catch (MQBrokerException | IllegalStateException error) {
                say("refused", message.getKeys(), error.getMessage());
                if (refused == 20) {
                    throw error;
                }
                Thread.sleep(500);
            }
        }
    }

    static DefaultMQProducer transactions(String group) {
        TransactionMQProducer producer = new TransactionMQProducer(null, group, null, true, null);
        producer.setTransactionListener(new TransactionListener() {
            public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
                sleep(number("transaction", 0));
                say("committed", message.getKeys());
                return LocalTransactionState.COMMIT_MESSAGE;
            }

            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                say("checked", message.getKeys());
                return LocalTransactionState.COMMIT_MESSAGE;
            }
        });
        return producer;
    }

    /** RocketMQ 4 does not have it. */
    static void set(DefaultMQProducer producer, String name, int value) throws Exception {
        DefaultMQProducer.class.getMethod(name, int.class).invoke(producer, value);
    }

    // a consumer

    static void consume(String namesrv, String topic, String group) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group, null, strategy(), true, null);
        configure(consumer, namesrv);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        if (options.containsKey("broadcast")) {
            broadcast(consumer);
        }
        if (options.containsKey("threads")) {
            consumer.setConsumeThreadMin(Integer.parseInt(options.get("threads")));
            consumer.setConsumeThreadMax(Integer.parseInt(options.get("threads")));
        }
        consumer.setConsumeMessageBatchMaxSize((int) number("batch", 1));
        consumer.setConsumeTimeout(number("timeout", 15));
        consumer.subscribe(topic, "*");
        if (options.containsKey("orderly")) {
            consumer.registerMessageListener((MessageListenerOrderly) Actor::inOrder);
        } else {
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) ->
                handled(messages) ? ConsumeConcurrentlyStatus.CONSUME_SUCCESS : ConsumeConcurrentlyStatus.RECONSUME_LATER);
        }
        consumer.start();
        say("ready");
        while (true) {
            int read = System.in.read();
            if (read < 0) {
                break;
            }
            if (read == 'p') {
                consumer.suspend();
            } else if (read == 'r') {
                consumer.resume();
            }
        }
        consumer.shutdown();
        say("end");
        Thread.sleep(500);
        Runtime.getRuntime().halt(0);
    }

    static void assign(String namesrv, String topic, String group) throws Exception {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(group);
        configure(consumer, namesrv);
        consumer.setEnableMsgTrace(true);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.start();
        consumer.assign(consumer.fetchMessageQueues(topic));
        say("ready");
        while (!ended()) {
            handled(consumer.poll(200));
        }
        consumer.shutdown();
        say("end");
        Runtime.getRuntime().halt(0);
    }

    /** Nothing comes before the end of its standard input. */
    static final Thread INPUT = new Thread(() -> {
        try {
            System.in.read();
        } catch (java.io.IOException closed) {
            // that is the end too
        }
    });

    static boolean ended() {
        if (INPUT.getState() == Thread.State.NEW) {
            INPUT.setDaemon(true);
            INPUT.start();
        }
        return !INPUT.isAlive();
    }

    /** MessageModel has another package in RocketMQ 4 than in 5. */
    static void broadcast(DefaultMQPushConsumer consumer) throws Exception {
        for (java.lang.reflect.Method method : DefaultMQPushConsumer.class.getMethods()) {
            if (method.getName().equals("setMessageModel")) {
                method.invoke(consumer, method.getParameterTypes()[0].getField("BROADCASTING").get(null));
            }
        }
    }

    static AllocateMessageQueueStrategy strategy() {
        boolean circle = "circle".equals(options.get("strategy"));
        return circle ? new AllocateMessageQueueAveragelyByCircle() : new AllocateMessageQueueAveragely();
    }

    @SuppressWarnings("deprecation")
    static ConsumeOrderlyStatus inOrder(List<MessageExt> messages, ConsumeOrderlyContext context) {
        boolean success = handled(messages);
        if (!options.containsKey("commit")) {
            return success ? ConsumeOrderlyStatus.SUCCESS : ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT;
        }
        context.setAutoCommit(false);
        if (!success) {
            return ConsumeOrderlyStatus.ROLLBACK;
        }
        String last = messages.get(messages.size() - 1).getKeys();
        boolean commits = Arrays.asList(options.get("commit").split(",")).contains(last);
        return commits ? ConsumeOrderlyStatus.COMMIT : ConsumeOrderlyStatus.SUCCESS;
    }

    static boolean handled(List<MessageExt> messages) {
        boolean success = true;
        for (MessageExt message : messages) {
            String key = message.getKeys();
            boolean first = message.getReconsumeTimes() == 0;
            say("got", key, message.getMsgId(), message.getTopic(), message.getQueueId(), message.getQueueOffset(),
                message.getReconsumeTimes(), message.getStoreHost());
            if (first && named("interrupt", key)) {
                interruptSoon(Thread.currentThread());
            }
            try {
                Thread.sleep(first && named("slow", key) ? time("slow") : number("work", 0));
            } catch (InterruptedException stopped) {
                if (named("interrupt", key)) {
                    Actor.<RuntimeException>raise(stopped);
                }
                return false;
            }
            boolean fails = first && key.equals(options.get("fail")) && failed.add(key);
            success &= !fails;
            say("done", key, !fails);
        }
        return success;
    }

    static void interruptSoon(Thread handler) {
        Thread watch = new Thread(() -> {
            sleep(time("interrupt"));
            handler.interrupt();
        });
        watch.setDaemon(true);
        watch.start();
    }

    /** Whether an option KEY:MS is about this key. */
    static boolean named(String option, String key) {
        return options.getOrDefault(option, ":0").split(":")[0].equals(key);
    }

    static long time(String option) {
        return Long.parseLong(options.get(option).split(":")[1]);
    }

    /** An interrupt goes through as what it is, although a handler does not declare it. */
    static void sleep(long ms) {
        try {
            Thread.sleep(ms);
        } catch (InterruptedException stopped) {
            Actor.<RuntimeException>raise(stopped);
        }
    }

    @SuppressWarnings("unchecked")
    static <T extends Throwable> void raise(Throwable error) throws T {
        throw (T) error;
    }
}
