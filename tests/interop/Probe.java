import com.alibaba.fastjson2.JSON;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.InetSocketAddress;
import java.net.SocketAddress;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.client.QueryResult;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * Asks a RocketMQ with its own client. One command a line on standard input, its parts separated by tabs; one line
 * for each on standard output, "> " and JSON, {"error": ...} when RocketMQ refused. Arguments: name server, broker name,
 * a topic of that broker.
 */
public class Probe {
    private static final String CLUSTER = "DefaultCluster";
    private static final int BATCH = 32;
    private static final int ROUTE_TRIES = 60;
    private static final int TIMEOUT_MS = 5_000;

    private final String broker;
    private final DefaultMQPullConsumer reader = new DefaultMQPullConsumer("INTEROP_READER");
    private final DefaultMQProducer sender = new DefaultMQProducer("INTEROP_SENDER");
    private final DefaultMQAdminExt admin = new DefaultMQAdminExt("INTEROP_ADMIN");

    private Probe(String namesrv, String broker, String topic) throws Exception {
        this.broker = broker;
        reader.setNamesrvAddr(namesrv);
        sender.setNamesrvAddr(namesrv);
        admin.setNamesrvAddr(namesrv);
        reader.start();
        sender.start();
        admin.start();
        awaitRoute(topic);
    }

    /** Until the broker is registered; the route also tells where it is, which system topics have none for. */
    private void awaitRoute(String topic) throws Exception {
        for (int tries = 1; ; tries++) {
            try {
                reader.fetchSubscribeMessageQueues(topic);
                return;
            } catch (MQClientException absent) {
                if (tries == ROUTE_TRIES) {
                    throw absent;
                }
                Thread.sleep(500);
            }
        }
    }

    public static void main(String[] args) throws Exception {
        try {
            serve(new Probe(args[0], args[1], args[2]));
            System.exit(0);
        } catch (Exception error) {
            error.printStackTrace();
            System.exit(1); // the clients' threads would keep the process alive
        }
    }

    private static void serve(Probe probe) throws Exception {
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            Object answer;
            try {
                answer = probe.answer(line.split("\t", -1));
            } catch (Exception error) {
                answer = Map.of("error", String.valueOf(error));
            }
            System.out.write(("> " + JSON.toJSONString(answer) + "\n").getBytes(StandardCharsets.UTF_8));
            System.out.flush();
        }
    }

    private Object answer(String[] parts) throws Exception {
        switch (parts[0]) {
            case "bounds": return bounds(queue(parts));
            case "records": return records(queue(parts), Long.parseLong(parts[3]), Long.parseLong(parts[4]));
            case "search": return reader.searchOffset(queue(parts), Long.parseLong(parts[3]));
            case "query": return query(parts[1], parts[2]);
            case "view": return describe(admin.getDefaultMQAdminExtImpl().getMqClientInstance().getMQClientAPIImpl()
                .viewMessage(address(), parts[1], Long.parseLong(parts[2]), TIMEOUT_MS));
            case "unique": return unique(parts[1], parts[2]);
            case "offsets": return offsets(parts[1]);
            case "send": return send(parts);
            default: throw new IllegalArgumentException("no command " + parts[0]);
        }
    }

    private MessageQueue queue(String[] parts) {
        return new MessageQueue(parts[1], broker, Integer.parseInt(parts[2]));
    }

    private Object bounds(MessageQueue queue) throws Exception {
        return List.of(reader.minOffset(queue), reader.maxOffset(queue));
    }

    private Object records(MessageQueue queue, long from, long end) throws Exception {
        List<Object> found = new ArrayList<>();
        for (long at = from; at < end;) {
            PullResult pulled = reader.pull(queue, "*", at, BATCH);
            if (pulled.getMsgFoundList() != null) {
                for (MessageExt message : pulled.getMsgFoundList()) {
                    if (message.getQueueOffset() < end) {
                        found.add(describe(message));
                    }
                }
            }
            if (pulled.getNextBeginOffset() <= at) {
                throw new IllegalStateException(pulled.getPullStatus() + " at " + at);
            }
            at = pulled.getNextBeginOffset();
        }
        return found;
    }

    private static Map<String, Object> describe(MessageExt message) throws Exception {
        Map<String, Object> row = new LinkedHashMap<>();
        row.put("topic", message.getTopic());
        row.put("queue_id", message.getQueueId());
        row.put("queue_offset", message.getQueueOffset());
        row.put("log_offset", message.getCommitLogOffset());
        row.put("store_size", message.getStoreSize());
        row.put("body_crc", message.getBodyCRC());
        row.put("sys_flag", message.getSysFlag());
        row.put("flag", message.getFlag());
        row.put("born_timestamp", message.getBornTimestamp());
        row.put("store_timestamp", message.getStoreTimestamp());
        row.put("reconsume_times", message.getReconsumeTimes());
        row.put("prepared_transaction_offset", message.getPreparedTransactionOffset());
        row.put("tags", message.getTags());
        row.put("keys", message.getKeys());
        row.put("body_sha256", hex(MessageDigest.getInstance("SHA-256").digest(body(message))));
        row.put("properties", new TreeMap<>(message.getProperties()));
        row.put("born_host", host(message.getBornHost()));
        row.put("store_host", host(message.getStoreHost()));
        return row;
    }

    /** RocketMQ's client has no array for an empty body. */
    private static byte[] body(MessageExt message) {
        return message.getBody() == null ? new byte[0] : message.getBody();
    }

    private static String host(SocketAddress address) {
        InetSocketAddress host = (InetSocketAddress) address;
        return host.getAddress().getHostAddress() + ":" + host.getPort();
    }

    private static String hex(byte[] bytes) {
        StringBuilder text = new StringBuilder();
        for (byte each : bytes) {
            text.append(String.format("%02x", each));
        }
        return text.toString();
    }

    private Object query(String topic, String key) throws Exception {
        try {
            List<Long> found = new ArrayList<>();
            for (MessageExt message : admin.queryMessage(topic, key, 64, 0, Long.MAX_VALUE).getMessageList()) {
                found.add(message.getCommitLogOffset());
            }
            return found;
        } catch (MQClientException nothing) {
            if (String.valueOf(nothing.getMessage()).contains("no message")) {
                return List.of();
            }
            throw nothing;
        }
    }

    private Object unique(String topic, String uniqueKey) throws Exception {
        List<Long> found = new ArrayList<>();
        long end = Long.MAX_VALUE;
        QueryResult answer = admin.queryMessageByUniqKey(CLUSTER, topic, uniqueKey, 32, 0, end);
        for (MessageExt message : answer.getMessageList()) {
            found.add(message.getCommitLogOffset());
        }
        return found;
    }

    private String address() throws Exception {
        return admin.examineBrokerClusterInfo().getBrokerAddrTable().get(broker).selectBrokerAddr();
    }

    private Object offsets(String group) throws Exception {
        Map<String, Object> found = new TreeMap<>();
        admin.examineConsumeStats(group).getOffsetTable().forEach((queue, offsets) ->
            found.put(queue.getTopic() + "/" + queue.getQueueId(), offsets.getConsumerOffset()));
        return found;
    }

    private Object send(String[] parts) throws Exception {
        Message message = new Message(parts[1], parts[3], parts[4], parts[5].getBytes(StandardCharsets.UTF_8));
        message.setDelayTimeLevel(Integer.parseInt(parts[6]));
        SendResult sent = sender.send(message, queue(parts));
        return List.of(sent.getSendStatus().name(), sent.getQueueOffset(), sent.getOffsetMsgId());
    }
}
