import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;

/**
 * The requests of Storm's bolt and spout: sends one by one, asynchronously and as a batch, then a concurrent consumer
 * that puts its first message off, and an ordered one. Argument: the name server.
 */
public class Storm {
    private static final int MESSAGES = 6;

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
        DefaultMQProducer bolt = new DefaultMQProducer("storm_bolt");
        bolt.setNamesrvAddr(namesrv);
        bolt.setInstanceName("7");
        bolt.setSendMsgTimeout(30_000);
        bolt.start();
        bolt.send(new Message("storm", "tag", "key", "0".getBytes()));
        CountDownLatch sent = new CountDownLatch(1);
        bolt.send(new Message("storm", "tag", "key", "1".getBytes()), new SendCallback() {
            public void onSuccess(SendResult result) {
                sent.countDown();
            }

            public void onException(Throwable error) {
                error.printStackTrace();
            }
        });
        System.out.println("sent asynchronously " + sent.await(60, TimeUnit.SECONDS));
        List<Message> batch = new ArrayList<>();
        for (int number = 2; number < MESSAGES; number++) {
            batch.add(new Message("storm", "tag", "key", ("" + number).getBytes()));
        }
        System.out.println("batch " + bolt.send(batch).getSendStatus());
        System.out.println("concurrent " + spout(namesrv, "storm_spout", false));
        System.out.println("ordered " + spout(namesrv, "storm_ordered_spout", true));
        bolt.shutdown();
        System.exit(0);
    }

    private static String spout(String namesrv, String group, boolean ordered) throws Exception {
        List<String> got = new ArrayList<>();
        CountDownLatch all = new CountDownLatch(MESSAGES + (ordered ? 0 : 1));
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(namesrv);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe("storm", "*");
        if (ordered) {
            consumer.registerMessageListener((MessageListenerOrderly) (some, context) -> {
                take(got, new String(some.get(0).getBody()), all);
                return ConsumeOrderlyStatus.SUCCESS;
            });
        } else {
            consumer.registerMessageListener((MessageListenerConcurrently) (some, context) -> {
                String body = new String(some.get(0).getBody());
                boolean full = body.equals("0") && some.get(0).getReconsumeTimes() == 0; // as a spout whose queue is full
                take(got, body + (full ? " put off" : ""), all);
                return full ? ConsumeConcurrentlyStatus.RECONSUME_LATER : ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
        }
        consumer.start();
        consumer.suspend();
        consumer.resume();
        all.await(120, TimeUnit.SECONDS);
        consumer.shutdown();
        synchronized (got) {
            String[] sorted = got.toArray(new String[0]);
            Arrays.sort(sorted);
            return Arrays.toString(sorted);
        }
    }

    private static void take(List<String> got, String body, CountDownLatch all) {
        synchronized (got) {
            got.add(body);
        }
        all.countDown();
    }
}
