// Push consumers of RocketMQ 5 whose broker shares out the queues: in POP mode, and in PULL mode again.
//
// Arguments: the name server, and a word that makes names unique. Lines are sorted where messages may come in any order.

import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ConcurrentSkipListSet;

import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageRequestMode;
import org.apache.rocketmq.remoting.protocol.subscription.SubscriptionGroupConfig;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

public class PopMode {
    static final long PATIENCE_MS = 90_000;
    static final Set<String> got = new ConcurrentSkipListSet<>();

    public static void main(String[] args) throws Exception {
        Thread.currentThread().setUncaughtExceptionHandler((thread, error) -> {  // other threads would live on
            error.printStackTrace();
            Runtime.getRuntime().halt(1);
        });
        String namesrv = args[0];
        String topic = args[1] + "_topic";
        String group = args[1] + "_group";
        DefaultMQAdminExt admin = new DefaultMQAdminExt(20_000);
        admin.setNamesrvAddr(namesrv);
        admin.start();
        String broker = admin.examineBrokerClusterInfo().getBrokerAddrTable().get("broker-a").selectBrokerAddr();
        admin.createAndUpdateTopicConfig(broker, new TopicConfig(topic, 4, 4));
        SubscriptionGroupConfig settings = new SubscriptionGroupConfig();
        settings.setGroupName(group);
        admin.createAndUpdateSubscriptionGroupConfig(broker, settings);
        admin.setMessageRequestMode(broker, topic, group, MessageRequestMode.POP, 0, 5_000);

        DefaultMQProducer producer = new DefaultMQProducer(group + "_p");
        producer.setNamesrvAddr(namesrv);
        producer.setSendMsgTimeout(10_000);
        producer.start();
        for (int number = 0; number < 12; number++) {
            send(producer, topic, number);
        }
        List<DefaultMQPushConsumer> consumers = new ArrayList<>();
        for (String name : new String[] {"one", "two"}) {
            consumers.add(consumer(namesrv, topic, group, name));
        }
        tell("popped", 13);
        admin.setMessageRequestMode(broker, topic, group, MessageRequestMode.PULL, 0, 5_000);
        long end = System.currentTimeMillis() + PATIENCE_MS;
        boolean pulled = false;
        for (int number = 12; !pulled && System.currentTimeMillis() < end; number++) {
            send(producer, topic, number);
            Thread.sleep(1_000);
            pulled = got.stream().anyMatch(each -> each.contains("pulled"));
        }
        System.out.println("after the switch " + (pulled ? "they are pulled" : "nothing is pulled"));
        for (DefaultMQPushConsumer each : consumers) {
            each.shutdown();
        }
        System.out.println("end");
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    static void send(DefaultMQProducer producer, String topic, int number) throws Exception {
        producer.send(new Message(topic, String.format("body %02d", number).getBytes(StandardCharsets.UTF_8)));
    }

    static DefaultMQPushConsumer consumer(String namesrv, String topic, String group, String name) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(namesrv);
        consumer.setInstanceName(name);
        consumer.setClientRebalance(false);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            MessageExt message = messages.get(0);
            String body = new String(message.getBody(), StandardCharsets.UTF_8);
            String way = message.getProperty("POP_CK") == null ? "pulled" : "popped";
            got.add(body + " " + way + " try " + message.getReconsumeTimes());
            return body.equals("body 07") && message.getReconsumeTimes() == 0
                ? ConsumeConcurrentlyStatus.RECONSUME_LATER : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        return consumer;
    }

    static void tell(String what, int count) throws Exception {
        long end = System.currentTimeMillis() + PATIENCE_MS;
        while (got.size() < count && System.currentTimeMillis() < end) {
            Thread.sleep(100);
        }
        System.out.println(what);
        new TreeSet<>(new HashSet<>(got)).forEach(System.out::println);
    }
}
