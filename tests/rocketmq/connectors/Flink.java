import java.util.Collections;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.store.ReadOffsetType;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * The requests of Flink's connector: its sink commits transactions when they are checked, its source asks for bounds of
 * queues, assigns and seeks them, and commits at a checkpoint. Argument: the name server.
 */
public class Flink {
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
        TransactionMQProducer sink = new TransactionMQProducer("flink_sink");
        sink.setNamesrvAddr(namesrv);
        sink.setVipChannelEnabled(false);
        sink.setTransactionListener(new TransactionListener() {
            public LocalTransactionState executeLocalTransaction(Message message, Object argument) {
                return LocalTransactionState.UNKNOW;
            }

            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                return LocalTransactionState.COMMIT_MESSAGE;
            }
        });
        sink.setSendMsgTimeout(30_000);
        sink.start();
        MessageQueue queue = sink.send(new Message("flink", "0".getBytes())).getMessageQueue();
        sink.send(new Message("flink", "1".getBytes()), queue);
        System.out.println("half " + sink.sendMessageInTransaction(new Message("flink", "2".getBytes()), null)
            .getSendStatus());
        source(namesrv, queue);
        sink.shutdown();
        System.exit(0);
    }

    private static void source(String namesrv, MessageQueue queue) throws Exception {
        DefaultMQAdminExt admin = new DefaultMQAdminExt("flink_source");
        admin.setNamesrvAddr(namesrv);
        admin.setAdminExtGroup("flink_source");
        admin.setInstanceName("admin");
        admin.start();
        DefaultLitePullConsumer source = new DefaultLitePullConsumer("flink_source");
        source.setNamesrvAddr(namesrv);
        source.setAutoCommit(false);
        source.setVipChannelEnabled(false);
        source.start();
        System.out.println("queues " + source.fetchMessageQueues("flink").size());
        System.out.println("bounds " + admin.minOffset(queue) + " " + (admin.maxOffset(queue) >= 2) + " "
            + admin.searchOffset(queue, 1));
        source.assign(Collections.singleton(queue));
        source.seek(queue, 1);
        source.pause(Collections.singleton(queue));
        source.resume(Collections.singleton(queue));
        CountDownLatch wanted = new CountDownLatch(1);
        for (int tries = 0; tries < 60 && wanted.getCount() > 0; tries++) {
            List<MessageExt> polled = source.poll(1_000);
            for (MessageExt each : polled) {
                if (each.getQueueOffset() == 1) {
                    System.out.println("from the checkpoint " + new String(each.getBody()));
                    wanted.countDown();
                }
            }
        }
        wanted.await(0, TimeUnit.SECONDS);
        source.getOffsetStore().updateOffset(queue, 2, true);
        source.getOffsetStore().persist(queue);
        for (int tries = 0; tries < 60 && stored(source, queue) < 2; tries++) {
            Thread.sleep(500);
        }
        System.out.println("committed " + stored(source, queue));
        source.shutdown();
        admin.shutdown();
    }

    private static long stored(DefaultLitePullConsumer source, MessageQueue queue) {
        return source.getOffsetStore().readOffset(queue, ReadOffsetType.READ_FROM_STORE);
    }
}
