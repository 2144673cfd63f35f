import java.util.Collections;
import java.util.HashSet;
import java.util.Set;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * The requests of Spark's connector: a sink that sends, ranges of offsets that are pulled and committed, and a receiver.
 * Argument: the name server.
 */
public class Spark {
    private static final int MESSAGES = 12;

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
        DefaultMQProducer producer = new DefaultMQProducer("spark_sink");
        producer.setNamesrvAddr(namesrv);
        producer.setSendMsgTimeout(30_000);
        producer.start();
        for (int number = 0; number < MESSAGES; number++) {
            producer.send(new Message("spark", ("" + number).getBytes()));
        }
        producer.shutdown();
        System.out.println("pulled " + ranges(namesrv));
        System.out.println("received " + receiver(namesrv));
    }

    private static int ranges(String namesrv) throws Exception {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer("spark_ranges");
        consumer.setNamesrvAddr(namesrv);
        consumer.start();
        int found = 0;
        for (MessageQueue queue : consumer.fetchSubscribeMessageQueues("spark")) {
            long from = consumer.minOffset(queue);
            long until = consumer.maxOffset(queue);
            PullResult pulled = consumer.pull(queue, "*", from, (int) Math.max(1, until - from));
            found += pulled.getPullStatus() == PullStatus.FOUND ? pulled.getMsgFoundList().size() : 0;
            consumer.updateConsumeOffset(queue, until);
            consumer.getDefaultMQPullConsumerImpl().getOffsetStore().persist(queue);
            if (consumer.fetchConsumeOffset(queue, false) != until) {
                System.out.println("not committed: " + queue);
            }
        }
        consumer.shutdown();
        return found;
    }

    private static int receiver(String namesrv) throws Exception {
        Set<String> got = Collections.synchronizedSet(new HashSet<>());
        CountDownLatch all = new CountDownLatch(MESSAGES);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("spark_receiver");
        consumer.setNamesrvAddr(namesrv);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe("spark", "*");
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
        return got.size();
    }
}
