// A producer, a pull and a heartbeat with keys: arguments are name server, access key and secret key ("" for none).
import java.util.List;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.RPCHook;

public class Acl {
    public static void main(String[] arguments) throws Exception {
        Thread.currentThread().setUncaughtExceptionHandler((thread, error) -> {  // other threads would live on
            error.printStackTrace();
            Runtime.getRuntime().halt(1);
        });
        RPCHook hook = arguments.length < 3 ? null
            : new AclClientRPCHook(new SessionCredentials(arguments[1], arguments[2]));
        DefaultMQProducer producer = new DefaultMQProducer("acl_makers", hook);
        producer.setNamesrvAddr(arguments[0]);
        producer.setRetryTimesWhenSendFailed(0);
        producer.start();
        for (String topic : new String[] {"orders", "foreign"}) {
            try {
                Message message = new Message(topic, "tag", "kéy", "bödy".getBytes("UTF-8"));
                System.out.println("sent " + topic + " " + producer.send(message).getSendStatus());
            } catch (Exception error) {
                System.out.println("refused " + topic + " " + error.getMessage().split("\n")[0]);
            }
        }
        producer.shutdown();
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer("billing", hook);
        consumer.setNamesrvAddr(arguments[0]);
        consumer.setConsumeFromWhere(org.apache.rocketmq.common.consumer.ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        try {
            consumer.subscribe("orders", "*");
            consumer.start();
            long until = System.currentTimeMillis() + 10_000;
            List<MessageExt> got = consumer.poll(500);
            while (got.isEmpty() && System.currentTimeMillis() < until && arguments.length > 3) {
                got = consumer.poll(500);
            }
            System.out.println("got " + got.size());
        } catch (Exception error) {
            System.out.println("refused consumer " + error.getMessage().split("\n")[0]);
        }
        consumer.shutdown();
        System.exit(0);
    }
}
