import java.util.Collections;
import java.util.HashSet;
import java.util.Set;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;

/** The requests of Ignite's streamer: a concurrent consumer of a whole topic. Argument: the name server. */
public class Ignite {
    private static final int MESSAGES = 100;

    public static void main(String[] args) {
        try {
            run(args[0]);
            System.exit(0);
        } catch (Exception error) {
            error.printStackTrace();
            System.exit(1); // the clients' threads would keep the process alive
        }
    }

    private static void run(String namesrv) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("ignite_producer");
        producer.setNamesrvAddr(namesrv);
        producer.setSendMsgTimeout(30_000);
        producer.start();
        for (int number = 0; number < MESSAGES; number++) {
            producer.send(new Message("ignite", ("" + number).getBytes()));
        }
        producer.shutdown();
        Set<String> got = Collections.synchronizedSet(new HashSet<>());
        CountDownLatch all = new CountDownLatch(MESSAGES);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("ignite_streamer");
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setNamesrvAddr(namesrv);
        consumer.subscribe("ignite", "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (some, context) -> {
            some.forEach(each -> {
                if (got.add(new String(each.getBody()))) {
                    all.countDown();
                }
            });
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        all.await(120, TimeUnit.SECONDS);
        consumer.shutdown();
        System.out.println("streamed " + got.size());
        System.exit(0);
    }
}
