import com.alibaba.rocketmq.client.consumer.DefaultMQPullConsumer;
import com.alibaba.rocketmq.client.consumer.MessageQueueListener;
import com.alibaba.rocketmq.client.consumer.PullResult;
import com.alibaba.rocketmq.client.consumer.PullStatus;
import com.alibaba.rocketmq.client.producer.DefaultMQProducer;
import com.alibaba.rocketmq.common.message.Message;
import com.alibaba.rocketmq.common.message.MessageQueue;
import com.alibaba.rocketmq.common.protocol.heartbeat.MessageModel;
import java.util.Collections;
import java.util.Set;

/**
 * The requests of Druid's firehose: it pulls each queue from the group's offset, and holds the pull of one that is empty.
 * It commits nothing: the client of this version gives it no store of offsets. Argument: the name server.
 */
public class Druid {
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
        System.setProperty("rocketmq.namesrv.addr", namesrv);
        DefaultMQProducer producer = new DefaultMQProducer("druid_producer");
        producer.setSendMsgTimeout(30_000);
        producer.start();
        for (int number = 0; number < MESSAGES; number++) {
            producer.send(new Message("druid", ("" + number).getBytes()));
        }
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer("druid_firehose");
        consumer.setMessageModel(MessageModel.CLUSTERING);
        consumer.setMessageQueueListener(new MessageQueueListener() {
            public void messageQueueChanged(String topic, Set<MessageQueue> all, Set<MessageQueue> mine) {
            }
        });
        consumer.setRegisterTopics(Collections.singleton("druid"));
        consumer.start();
        Set<MessageQueue> queues = consumer.fetchSubscribeMessageQueues("druid");
        int found = 0;
        for (MessageQueue queue : queues) {
            long offset = Math.max(0, consumer.fetchConsumeOffset(queue, false));
            PullResult pulled = consumer.pull(queue, "*", offset, 32);
            found += pulled.getPullStatus() == PullStatus.FOUND ? pulled.getMsgFoundList().size() : 0;
        }
        System.out.println("found " + found);
        MessageQueue first = queues.iterator().next();
        long next = consumer.maxOffset(first);
        new Thread(() -> {
            try {
                Thread.sleep(1_000);
                producer.send(new Message("druid", "later".getBytes()), (all, message, argument) -> first, null);
            } catch (Exception error) {
                error.printStackTrace();
            }
        }).start();
        PullResult held = consumer.pullBlockIfNotFound(first, "*", next, 32);
        System.out.println("held " + new String(held.getMsgFoundList().get(0).getBody()));
        consumer.shutdown();
        producer.shutdown();
        System.exit(0);
    }
}
