import java.util.Set;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.common.protocol.heartbeat.MessageModel;

/**
 * The requests of the MySQL replicator: it sends its changes, and after a restart it reads its position from the last
 * message of the topic's first queue. Argument: the name server.
 */
public class MySql {
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
        DefaultMQProducer producer = new DefaultMQProducer("BINLOG_PRODUCER_GROUP");
        producer.setNamesrvAddr(namesrv);
        producer.setSendMsgTimeout(30_000);
        producer.start();
        for (int number = 1; number <= 8; number++) { // each queue gets one
            String change = "{\"binlogFilename\":\"binlog.1\",\"nextPosition\":" + number + "}";
            producer.send(new Message("binlog", change.getBytes("UTF-8")));
        }
        producer.shutdown();
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer("BINLOG_CONSUMER_GROUP");
        consumer.setNamesrvAddr(namesrv);
        consumer.setMessageModel(MessageModel.valueOf("BROADCASTING"));
        consumer.start();
        Set<MessageQueue> queues = consumer.fetchSubscribeMessageQueues("binlog");
        MessageQueue queue = queues.iterator().next();
        long offset = consumer.maxOffset(queue);
        PullResult pulled = consumer.pull(queue, "*", offset > 0 ? offset - 1 : offset, 100);
        String last = new String(pulled.getMsgFoundList().get(0).getBody(), "UTF-8");
        System.out.println(pulled.getPullStatus() + " " + queues.size() + " queues, " + last.replaceAll("[0-9]}", "N}"));
        consumer.shutdown();
        System.exit(0);
    }
}
