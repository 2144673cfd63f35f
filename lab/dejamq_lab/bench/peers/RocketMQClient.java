import com.alibaba.fastjson2.JSON;
import com.alibaba.fastjson2.JSONObject;
import com.sun.management.OperatingSystemMXBean;
import java.lang.management.ManagementFactory;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * One client process of a measurement, of RocketMQ by its own Java client. The argument is the job in JSON. Says "ready"
 * on standard output, begins when a line comes on standard input, and says what it measured, as worker.py does.
 */
public class RocketMQClient {
    private static final int UNDER_WAY = 512;
    private static final int WARM_SHARE = 3;
    private static final int HANDED_AT_ONCE = 32;
    private static final int STAMP_BYTES = 8;
    private static final int TIMEOUT_MS = 30_000;

    private final String what;
    private final String address;
    private final String topic;
    private final JSONObject load;
    private final int messages;
    private final byte[] body;
    private double[] samples = new double[0];
    private long began;
    private long beganCore;

    private RocketMQClient(JSONObject job) {
        what = job.getString("what");
        address = job.getString("address");
        topic = job.getJSONArray("topics").getString(0);
        load = job.getJSONObject("load");
        messages = load.getIntValue("messages");
        body = new byte[load.getIntValue("body_bytes")];
        for (int at = 0; at < body.length; at++) {
            body[at] = (byte) at;
        }
    }

    public static void main(String[] args) throws Exception {
        JSONObject job = JSON.parseObject(args[0]);
        RocketMQClient client = new RocketMQClient(job);
        try {
            client.makeTopic();
            if (job.getString("role").equals("produce")) {
                client.produce();
            } else {
                client.consume();
            }
            System.exit(0);
        } catch (Exception error) {
            System.err.println(error);
            System.exit(1); // the clients' threads would keep the process alive
        }
    }

    private void makeTopic() throws Exception {
        DefaultMQAdminExt admin = new DefaultMQAdminExt("BENCH_ADMIN");
        admin.setNamesrvAddr(address);
        admin.start();
        int queues = load.getIntValue("queues");
        while (admin.examineBrokerClusterInfo().getBrokerAddrTable().isEmpty()) {
            Thread.sleep(100); // the broker registers a moment after it says that it is up
        }
        String broker = admin.examineBrokerClusterInfo().getBrokerAddrTable().values().iterator().next().selectBrokerAddr();
        admin.createAndUpdateTopicConfig(broker, new TopicConfig(topic, queues, queues));
        while (true) {
            try {
                admin.examineTopicRouteInfo(topic);
                break;
            } catch (Exception notYet) {
                Thread.sleep(100);
            }
        }
        admin.shutdown();
    }

    private static long coreNanos() {
        return ((OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean()).getProcessCpuTime();
    }

    private static void gate() throws Exception {
        System.out.println("ready");
        System.in.read();
    }

    private void start() {
        beganCore = coreNanos();
        began = System.nanoTime();
    }

    private void tell(long ended) {
        Map<String, Object> span = new LinkedHashMap<>();
        span.put("began_ns", began);
        span.put("ended_ns", ended);
        span.put("core_s", (coreNanos() - beganCore) / 1e9);
        if (samples.length > 0) {
            Arrays.sort(samples);
            span.put("p50_ms", samples[samples.length / 2]);
            span.put("p99_ms", samples[(int) (samples.length * 0.99)]);
        }
        System.out.println(JSON.toJSONString(span));
        System.out.flush();
    }

    private void produce() throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("BENCH_PRODUCER");
        producer.setNamesrvAddr(address);
        producer.setSendMsgTimeout(TIMEOUT_MS);
        producer.start();
        if (what.equals("send")) {
            send(producer, Math.max(1, messages / WARM_SHARE)); // the JVM compiles what is used often
        }
        gate();
        start();
        if (what.equals("latency")) {
            paced(producer);
        } else {
            send(producer, messages);
        }
        tell(System.nanoTime());
    }

    private void send(DefaultMQProducer producer, int count) throws Exception {
        switch (load.getString("mode")) {
            case "single": single(producer, count); break;
            case "batch": batches(producer, count, load.getIntValue("batch_size")); break;
            default: async(producer, count);
        }
    }

    private void single(DefaultMQProducer producer, int count) throws Exception {
        samples = new double[count];
        for (int number = 0; number < count; number++) {
            long before = System.nanoTime();
            producer.send(new Message(topic, body));
            samples[number] = (System.nanoTime() - before) / 1e6;
        }
    }

    private void batches(DefaultMQProducer producer, int count, int size) throws Exception {
        for (int sent = 0; sent < count; sent += size) {
            List<Message> batch = new ArrayList<>(size);
            for (int number = sent; number < Math.min(count, sent + size); number++) {
                batch.add(new Message(topic, body));
            }
            producer.send(batch, TIMEOUT_MS);
        }
    }

    private final Semaphore room = new Semaphore(UNDER_WAY);
    private final AtomicReference<Throwable> failed = new AtomicReference<>();

    private void async(DefaultMQProducer producer, int count) throws Exception {
        for (int number = 0; number < count; number++) {
            submit(producer, body);
        }
        await();
    }

    private void submit(DefaultMQProducer producer, byte[] content) throws Exception {
        room.acquire();
        producer.send(new Message(topic, content), new SendCallback() {
            @Override
            public void onSuccess(SendResult result) {
                room.release();
            }

            @Override
            public void onException(Throwable error) {
                failed.set(error);
                room.release();
            }
        });
    }

    private void await() throws Exception {
        room.acquire(UNDER_WAY);
        room.release(UNDER_WAY);
        if (failed.get() != null) {
            throw new IllegalStateException(failed.get());
        }
    }

    private void paced(DefaultMQProducer producer) throws Exception {
        int rate = load.getIntValue("rate");
        for (int sent = 0; sent < messages;) {
            int due = (int) Math.min(messages, (System.nanoTime() - began) * (double) rate / 1e9);
            for (; sent < due; sent++) {
                byte[] stamped = body.clone();
                ByteBuffer.wrap(stamped).order(ByteOrder.LITTLE_ENDIAN).putLong(System.nanoTime());
                submit(producer, stamped);
            }
            Thread.sleep(1);
        }
        await();
    }

    private void consume() throws Exception {
        boolean timed = what.equals("latency");
        double[] ages = new double[timed ? messages : 0];
        AtomicInteger handled = new AtomicInteger();
        CountDownLatch all = new CountDownLatch(1);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("BENCH_" + topic);
        consumer.setNamesrvAddr(address);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setConsumeMessageBatchMaxSize(timed ? 1 : HANDED_AT_ONCE);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (some, context) -> {
            int before = handled.getAndAdd(some.size());
            if (before == 0) {
                start();
            }
            for (MessageExt message : some) {
                if (message.getBody().length < STAMP_BYTES && timed) {
                    throw new IllegalStateException("a body without its moment");
                }
                if (timed && before < messages) {
                    long stamp = ByteBuffer.wrap(message.getBody()).order(ByteOrder.LITTLE_ENDIAN).getLong();
                    ages[before++] = (System.nanoTime() - stamp) / 1e6;
                }
            }
            if (handled.get() >= messages) {
                all.countDown();
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        gate();
        all.await();
        long ended = System.nanoTime();
        samples = ages;
        tell(ended);
        consumer.shutdown();
    }
}
