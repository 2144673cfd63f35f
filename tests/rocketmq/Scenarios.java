// What a program does with RocketMQ's own Java client, printed so that two brokers can be compared.
//
// Arguments: the name server, a word that makes names unique, then the scenarios. Names, ids, addresses and times differ
// from run to run and are not printed. It compiles with the jars of RocketMQ 4.9.8 and 5.3.3.

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.List;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;

import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.exception.MQBrokerException;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.RequestCallback;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

public class Scenarios {
    static final int PATIENCE_S = 30;
    static String namesrv;
    static String word;

    interface Scenario {
        void run(String topic, String group) throws Exception;
    }

    public static void main(String[] args) throws Exception {
        Thread.currentThread().setUncaughtExceptionHandler((thread, error) -> {  // other threads would live on
            error.printStackTrace();
            Runtime.getRuntime().halt(1);
        });
        namesrv = args[0];
        word = args[1];
        warmUp();
        for (int at = 2; at < args.length; at++) {
            String name = args[at];
            System.out.println("== " + name);
            String topic = word + "_" + name;
            try {
                of(name).run(topic, topic + "_group");
            } catch (MQClientException error) {
                System.out.println("client exception " + error.getResponseCode());
            } catch (MQBrokerException error) {
                System.out.println("broker exception " + error.getResponseCode());
            } catch (Exception error) {
                System.out.println(error);
            }
        }
        System.out.println("== end");
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    /** A server that has just started on a busy machine may need longer than a client waits. */
    static void warmUp() throws Exception {
        long end = System.currentTimeMillis() + PATIENCE_S * 1000L;
        while (System.currentTimeMillis() < end) {
            try {
                send(word + "_warm", "", 1);
                return;
            } catch (Exception again) {
                Thread.sleep(500);
            }
        }
    }

    static Scenario of(String name) {
        switch (name) {
            case "sync": return Scenarios::sync;
            case "async": return Scenarios::async;
            case "oneway": return Scenarios::oneway;
            case "batch": return Scenarios::batch;
            case "large": return Scenarios::large;
            case "concurrent": return Scenarios::concurrent;
            case "ordered": return Scenarios::ordered;
            case "tags": return Scenarios::tags;
            case "sql": return Scenarios::sql;
            case "lite": return Scenarios::lite;
            case "assign": return Scenarios::assign;
            case "retry": return Scenarios::retry;
            case "dead": return Scenarios::dead;
            case "delay": return Scenarios::delay;
            case "timer": return Scenarios::timer;
            case "transaction": return Scenarios::transaction;
            case "check": return Scenarios::check;
            case "request": return Scenarios::request;
            case "query": return Scenarios::query;
            case "member": return Scenarios::member;
            case "compressed": return Scenarios::compressed;
            case "traced": return Scenarios::traced;
            case "broadcast": return Scenarios::broadcast;
            case "vip": return Scenarios::vip;
            case "namespace": return Scenarios::namespace;
            default: throw new IllegalArgumentException(name);
        }
    }

    // sending

    static void sync(String topic, String group) throws Exception {
        DefaultMQProducer producer = producer(group);
        for (int number = 0; number < 3; number++) {
            Message message = message(topic, "tagA", number);
            message.putUserProperty("color", "red");
            tell(producer.send(message), message);
        }
        try {
            producer.send(new Message("TRANS_CHECK_MAX_TIME_TOPIC", bytes("x")));
        } catch (MQClientException error) {
            System.out.println("refused");
        }
        producer.shutdown();
        print(read(topic, group + "_r", "*", 3));
    }

    static void async(String topic, String group) throws Exception {
        DefaultMQProducer producer = producer(group);
        CountDownLatch done = new CountDownLatch(20);
        AtomicInteger sent = new AtomicInteger();
        for (int number = 0; number < 20; number++) {
            producer.send(message(topic, "", number), new SendCallback() {
                public void onSuccess(SendResult result) {
                    sent.incrementAndGet();
                    done.countDown();
                }

                public void onException(Throwable error) {
                    System.out.println(error);
                    done.countDown();
                }
            });
        }
        done.await(PATIENCE_S, TimeUnit.SECONDS);
        System.out.println("sent " + sent);
        producer.shutdown();
    }

    static void oneway(String topic, String group) throws Exception {
        DefaultMQProducer producer = producer(group);
        producer.send(message(topic, "", 0));
        for (int number = 1; number < 5; number++) {
            producer.sendOneway(message(topic, "", number));
        }
        print(read(topic, group + "_r", "*", 5));
        producer.shutdown();
    }

    static void batch(String topic, String group) throws Exception {
        DefaultMQProducer producer = producer(group);
        List<Message> messages = new ArrayList<>();
        for (int number = 0; number < 5; number++) {
            messages.add(message(topic, number % 2 == 0 ? "even" : "odd", number));
        }
        SendResult result = producer.send(messages);
        System.out.println(result.getSendStatus() + " ids " + result.getMsgId().split(",").length
            + " offset ids " + result.getOffsetMsgId().split(",").length + " at " + result.getQueueOffset());
        producer.shutdown();
        print(read(topic, group + "_r", "even", 3));
    }

    static void large(String topic, String group) throws Exception {
        DefaultMQProducer producer = producer(group);
        byte[] body = new byte[2 << 20];
        for (int at = 0; at < body.length; at++) {
            body[at] = (byte) (at * 31 + at / 7);
        }
        for (int number = 0; number < 4; number++) {
            System.out.println(producer.send(new Message(topic, body)).getSendStatus());
        }
        producer.shutdown();
        for (MessageExt found : read(topic, group + "_r", "*", 4)) {
            System.out.println("whole " + java.util.Arrays.equals(body, found.getBody()));
        }
    }

    // consuming

    static void concurrent(String topic, String group) throws Exception {
        send(topic, "", 40);
        List<MessageExt> found = read(topic, group, "*", 40);
        System.out.println(new TreeSet<>(bodies(found)).size() + " different ones");
        send(topic, "", 5);
        System.out.println("goes on " + (read(topic, group, "*", 5).size() < 40)); // one may come again
    }

    static void ordered(String topic, String group) throws Exception {
        DefaultMQProducer producer = producer(group + "_p");
        for (int number = 0; number < 30; number++) {
            producer.send(message(topic, "", number), (queues, message, key) -> queues.get((Integer) key), number % 3);
        }
        producer.shutdown();
        DefaultMQPushConsumer consumer = consumer(group);
        consumer.subscribe(topic, "*");
        TreeMap<Integer, List<String>> byQueue = new TreeMap<>();
        CountDownLatch done = new CountDownLatch(30);
        consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
            for (MessageExt each : messages) {
                synchronized (byQueue) {
                    byQueue.computeIfAbsent(each.getQueueId(), key -> new ArrayList<>()).add(text(each));
                }
                done.countDown();
            }
            return ConsumeOrderlyStatus.SUCCESS;
        });
        consumer.start();
        done.await(PATIENCE_S, TimeUnit.SECONDS);
        consumer.shutdown();
        System.out.println(byQueue);
    }

    static void tags(String topic, String group) throws Exception {
        send(topic, "paid", 3);
        send(topic, "sent", 3);
        send(topic, "lost", 3);
        print(read(topic, group, "paid || sent", 6));
    }

    static void sql(String topic, String group) throws Exception {
        DefaultMQProducer producer = producer(group + "_p");
        for (int number = 0; number < 6; number++) {
            Message message = message(topic, "", number);
            message.putUserProperty("age", String.valueOf(number));
            producer.send(message);
        }
        producer.shutdown();
        DefaultMQPushConsumer consumer = consumer(group);
        consumer.subscribe(topic, MessageSelector.bySql("age between 2 and 4"));
        print(received(consumer, 3));
    }

    static void lite(String topic, String group) throws Exception {
        send(topic, "", 10);
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(group);
        consumer.setNamesrvAddr(namesrv);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        consumer.start();
        List<MessageExt> found = polled(consumer, 10);
        consumer.commitSync();
        consumer.shutdown();
        print(found);
    }

    static void assign(String topic, String group) throws Exception {
        send(topic, "", 12);
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer(group);
        consumer.setNamesrvAddr(namesrv);
        consumer.setAutoCommit(false);
        consumer.start();
        Collection<MessageQueue> queues = consumer.fetchMessageQueues(topic);
        System.out.println(queues.size() + " queues");
        consumer.assign(queues);
        for (MessageQueue queue : queues) {
            consumer.seek(queue, 1);
        }
        System.out.println("from the second on " + polled(consumer, 8).size());
        for (MessageQueue queue : queues) {
            consumer.seekToBegin(queue);
        }
        System.out.println("from the first on " + polled(consumer, 12).size());
        consumer.shutdown();
    }

    // tries again

    static void retry(String topic, String group) throws Exception {
        send(topic, "", 1);
        DefaultMQPushConsumer consumer = consumer(group);
        consumer.subscribe(topic, "*");
        CountDownLatch done = new CountDownLatch(3);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt each : messages) {
                System.out.println(each.getTopic().replace(word, "") + " " + text(each) + " try "
                    + each.getReconsumeTimes());
                done.countDown();
            }
            context.setDelayLevelWhenNextConsume(1);
            return messages.get(0).getReconsumeTimes() < 2
                ? ConsumeConcurrentlyStatus.RECONSUME_LATER : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        done.await(PATIENCE_S, TimeUnit.SECONDS);
        consumer.shutdown();
    }

    static void dead(String topic, String group) throws Exception {
        send(topic, "", 1);
        DefaultMQPushConsumer consumer = consumer(group);
        consumer.setMaxReconsumeTimes(1);
        consumer.subscribe(topic, "*");
        CountDownLatch done = new CountDownLatch(2);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            context.setDelayLevelWhenNextConsume(1);
            done.countDown();
            return ConsumeConcurrentlyStatus.RECONSUME_LATER;
        });
        consumer.start();
        done.await(PATIENCE_S, TimeUnit.SECONDS);
        for (MessageExt each : read("%DLQ%" + group, group + "_d", "*", 1)) {
            System.out.println("dead " + text(each) + " after " + each.getReconsumeTimes());
        }
        consumer.shutdown();
    }

    static void delay(String topic, String group) throws Exception {
        DefaultMQProducer producer = producer(group + "_p");
        Message message = message(topic, "", 0);
        message.setDelayTimeLevel(2);
        System.out.println(producer.send(message).getSendStatus());
        producer.shutdown();
        for (MessageExt each : read(topic, group, "*", 1)) {
            System.out.println("late " + (each.getStoreTimestamp() - each.getBornTimestamp() >= 4_900));
        }
    }

    /** Times that client 5.x knows and 4.x does not, hence by their names. The last message but one is recalled. */
    static void timer(String topic, String group) throws Exception {
        DefaultMQProducer producer = producer(group + "_p");
        try {
            long now = System.currentTimeMillis();
            producer.send(message(topic, "", 9)); // makes the topic
            sentAt(producer, message(topic, "", 0), "setDelayTimeMs", 3_000);
            sentAt(producer, message(topic, "", 1), "setDelayTimeSec", 5);
            sentAt(producer, message(topic, "", 2), "setDeliverTimeMs", now + 7_000);
            sentAt(producer, message(topic, "", 3), "setDeliverTimeMs", now - 7_000);
            SendResult recalled = sentAt(producer, message(topic, "", 4), "setDelayTimeMs", 9_000);
            sentAt(producer, message(topic, "", 5), "setDelayTimeMs", 11_000);
            String handle = (String) SendResult.class.getMethod("getRecallHandle").invoke(recalled);
            Object id = DefaultMQProducer.class.getMethod("recallMessage", String.class, String.class)
                .invoke(producer, topic, handle);
            System.out.println("recalled " + id.equals(recalled.getMsgId()));
            for (MessageExt each : read(topic, group, "*", 6)) {
                long late = each.getStoreTimestamp() - each.getBornTimestamp();
                System.out.println(text(each) + " after " + (late >= 2_900) + " " + (late >= 4_900)
                    + " " + (late >= 6_800) + " " + (late >= 10_900));
            }
            sentAt(producer, message(topic, "", 6), "setDelayTimeSec", 4 * 24 * 3600);
        } finally {
            producer.shutdown();
        }
    }

    static SendResult sentAt(DefaultMQProducer producer, Message message, String setter, long time) throws Exception {
        Message.class.getMethod(setter, long.class).invoke(message, time);
        SendResult sent = producer.send(message);
        System.out.println(setter + " " + sent.getSendStatus());
        return sent;
    }

    // transactions, requests

    static void transaction(String topic, String group) throws Exception {
        transactions(topic, group, false);
    }

    static void check(String topic, String group) throws Exception {
        transactions(topic, group, true);
    }

    static void transactions(String topic, String group, boolean unknown) throws Exception {
        TransactionMQProducer producer = new TransactionMQProducer(group);
        producer.setNamesrvAddr(namesrv);
        CountDownLatch checked = new CountDownLatch(unknown ? 4 : 0);
        producer.setTransactionListener(new TransactionListener() {
            public LocalTransactionState executeLocalTransaction(Message message, Object number) {
                return unknown ? LocalTransactionState.UNKNOW : decided((Integer) number);
            }

            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                checked.countDown();
                return decided(Integer.parseInt(text(message).substring(5)));
            }
        });
        producer.start();
        for (int number = 0; number < 4; number++) {
            System.out.println(producer.sendMessageInTransaction(message(topic, "", number), number).getSendStatus());
        }
        System.out.println("all checked " + checked.await(PATIENCE_S, TimeUnit.SECONDS));
        print(read(topic, group + "_r", "*", 2));
        producer.shutdown();
    }

    static LocalTransactionState decided(int number) {
        return number % 2 == 0 ? LocalTransactionState.COMMIT_MESSAGE : LocalTransactionState.ROLLBACK_MESSAGE;
    }

    static void request(String topic, String group) throws Exception {
        send(topic, "", 1);
        DefaultMQProducer answering = producer(group + "_a");
        DefaultMQPushConsumer consumer = consumer(group);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt each : messages) {
                if (each.getProperty("CORRELATION_ID") != null) {
                    try {
                        answering.send(MessageUtil.createReplyMessage(each, bytes("reply to " + text(each))), 3000);
                    } catch (Exception late) {
                        return ConsumeConcurrentlyStatus.RECONSUME_LATER;
                    }
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        DefaultMQProducer asking = producer(group + "_q");
        CountDownLatch replied = new CountDownLatch(1);
        asking.request(message(topic, "", 7), new RequestCallback() { // the call that waits is broken in 5.3.3
            public void onSuccess(Message reply) {
                System.out.println(new String(reply.getBody(), StandardCharsets.UTF_8));
                replied.countDown();
            }

            public void onException(Throwable error) {
                System.out.println(error);
                replied.countDown();
            }
        }, PATIENCE_S * 1000L);
        replied.await(PATIENCE_S, TimeUnit.SECONDS);
        asking.shutdown();
        answering.shutdown();
        consumer.shutdown();
    }

    static void query(String topic, String group) throws Exception {
        DefaultMQProducer producer = producer(group);
        SendResult result = producer.send(message(topic, "tagA", 0));
        MessageExt byOffsetId = producer.viewMessage(topic, result.getOffsetMsgId());
        MessageExt byUniqueKey = null;
        for (int tries = 0; tries < 50 && byUniqueKey == null; tries++) {
            try {
                byUniqueKey = producer.viewMessage(topic, result.getMsgId());
            } catch (Exception later) {
                Thread.sleep(100);
            }
        }
        System.out.println(text(byOffsetId) + " " + (byUniqueKey == null ? "-" : text(byUniqueKey)));
        System.out.println(producer.queryMessage(topic, "key0", 10, 0, Long.MAX_VALUE).getMessageList().size());
        MessageQueue queue = result.getMessageQueue();
        System.out.println(producer.minOffset(queue) + " " + producer.maxOffset(queue) + " "
            + producer.searchOffset(queue, 0) + " " + (producer.earliestMsgStoreTime(queue) > 0));
        producer.shutdown();
    }

    // ways of a client

    static void compressed(String topic, String group) throws Exception {
        DefaultMQProducer producer = producer(group);
        byte[] body = bytes(String.join(" ", Collections.nCopies(5_000, "again")));
        System.out.println(producer.send(new Message(topic, body)).getSendStatus());
        producer.shutdown();
        for (MessageExt each : read(topic, group + "_r", "*", 1)) {
            System.out.println("whole " + java.util.Arrays.equals(body, each.getBody()) + " flag " + each.getSysFlag());
        }
    }

    static void traced(String topic, String group) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(group, null, true, null);
        producer.setNamesrvAddr(namesrv);
        producer.start();
        SendResult result = producer.send(message(topic, "", 0));
        System.out.println(result.getSendStatus());
        int found = 0;
        for (int tries = 0; tries < 300 && found == 0; tries++) {
            try {
                found = producer.queryMessage("RMQ_SYS_TRACE_TOPIC", result.getMsgId(), 10, 0, Long.MAX_VALUE)
                    .getMessageList().size();
            } catch (Exception later) {
                Thread.sleep(200);
            }
        }
        producer.shutdown();
        System.out.println("traces " + found);
    }

    static void broadcast(String topic, String group) throws Exception {
        send(topic, "", 1);
        CountDownLatch done = new CountDownLatch(2);
        List<DefaultMQPushConsumer> consumers = new ArrayList<>();
        for (int number = 0; number < 2; number++) {
            DefaultMQPushConsumer consumer = consumer(group);
            for (java.lang.reflect.Method method : DefaultMQPushConsumer.class.getMethods()) {
                if (method.getName().equals("setMessageModel")) { // its class is in another package in each version
                    method.invoke(consumer, method.getParameterTypes()[0].getField("BROADCASTING").get(null));
                }
            }
            consumer.setInstanceName("broadcast" + number);
            consumer.subscribe(topic, "*");
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                done.countDown();
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
            consumer.start();
            consumers.add(consumer);
        }
        System.out.println("both got it " + done.await(PATIENCE_S, TimeUnit.SECONDS));
        consumers.forEach(DefaultMQPushConsumer::shutdown);
    }

    static void vip(String topic, String group) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(group);
        producer.setNamesrvAddr(namesrv);
        producer.setVipChannelEnabled(true);
        producer.start();
        System.out.println(producer.send(message(topic, "", 0)).getSendStatus());
        producer.shutdown();
    }

    @SuppressWarnings("deprecation")
    static void namespace(String topic, String group) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(group);
        producer.setNamesrvAddr(namesrv);
        producer.setNamespace("space");
        producer.start();
        System.out.println(producer.send(message(topic, "", 0)).getSendStatus());
        producer.shutdown();
        DefaultMQPushConsumer consumer = consumer(group);
        consumer.setNamespace("space");
        consumer.subscribe(topic, "*");
        for (MessageExt each : received(consumer, 1)) {
            System.out.println(each.getTopic().replace(word, "") + " " + text(each));
        }
    }

    /** Prints what it gets until its standard input ends. */
    static void member(String topic, String group) throws Exception {
        DefaultMQPushConsumer consumer = consumer(group);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt each : messages) {
                System.out.println(text(each));
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        while (System.in.read() >= 0) {
            continue;
        }
        consumer.shutdown();
    }

    // what they have in common

    static DefaultMQProducer producer(String group) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer(group);
        producer.setNamesrvAddr(namesrv);
        producer.setSendMsgTimeout(10_000);
        producer.start();
        return producer;
    }

    /** 5.3.3 may tell a changed subscription to nobody before its next heartbeat, which is then soon. */
    static DefaultMQPushConsumer consumer(String group) {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(namesrv);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setHeartbeatBrokerInterval(2_000);
        consumer.setPollNameServerInterval(2_000);
        return consumer;
    }

    static void send(String topic, String tag, int count) throws Exception {
        DefaultMQProducer producer = producer(topic + "_p");
        for (int number = 0; number < count; number++) {
            producer.send(message(topic, tag, number));
        }
        producer.shutdown();
    }

    static Message message(String topic, String tag, int number) {
        return new Message(topic, tag, "key" + number, bytes("body " + number));
    }

    /** A group of its own gets this many messages, or time is up. */
    static List<MessageExt> read(String topic, String group, String expression, int count) throws Exception {
        DefaultMQPushConsumer consumer = consumer(group);
        consumer.subscribe(topic, expression);
        return received(consumer, count);
    }

    static List<MessageExt> received(DefaultMQPushConsumer consumer, int count) throws Exception {
        ConcurrentLinkedQueue<MessageExt> found = new ConcurrentLinkedQueue<>();
        CountDownLatch done = new CountDownLatch(count);
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            for (MessageExt each : messages) {
                found.add(each);
                done.countDown();
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        done.await(PATIENCE_S, TimeUnit.SECONDS);
        consumer.shutdown();
        return new ArrayList<>(found);
    }

    static List<MessageExt> polled(DefaultLitePullConsumer consumer, int count) {
        List<MessageExt> found = new ArrayList<>();
        long end = System.currentTimeMillis() + PATIENCE_S * 1000L;
        while (found.size() < count && System.currentTimeMillis() < end) {
            found.addAll(consumer.poll(500));
        }
        return found;
    }

    static void tell(SendResult result, Message message) {
        String key = message.getProperty("UNIQ_KEY");
        System.out.println(result.getSendStatus() + " id is the key " + result.getMsgId().equals(key)
            + " offset id " + result.getOffsetMsgId().length() + " region " + result.getRegionId()
            + " trace " + result.isTraceOn());
    }

    static void print(List<MessageExt> found) {
        List<String> lines = new ArrayList<>();
        for (MessageExt each : found) {
            TreeSet<String> names = new TreeSet<>(each.getProperties().keySet());
            lines.add(text(each) + " " + each.getTags() + " " + each.getKeys() + " " + each.getReconsumeTimes() + " "
                + each.getSysFlag() + " " + each.getFlag() + " " + names + " " + each.getProperty("color"));
        }
        Collections.sort(lines);
        lines.forEach(System.out::println);
    }

    static List<String> bodies(List<MessageExt> found) {
        List<String> texts = new ArrayList<>();
        found.forEach(each -> texts.add(text(each)));
        return texts;
    }

    static String text(MessageExt message) {
        return new String(message.getBody(), StandardCharsets.UTF_8);
    }

    static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }
}
