package dejamq.testcontainers;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayList;
import java.util.List;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.remoting.exception.RemotingException;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Test;

class DejamqContainerTest {
    private static final int PATIENCE_MS = 60_000;
    private static final DejamqContainer MQ =
            new DejamqContainer(System.getenv().getOrDefault("DEJAMQ_IMAGE", "dejamq:local"));

    @BeforeAll
    static void start() {
        MQ.start();
    }

    @AfterAll
    static void stop() {
        MQ.stop();
    }

    @Test
    void anOrderIsSentAgainWhenTheAnswerIsLostAndTheDuplicateIsExplained() throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("shop");
        producer.setNamesrvAddr(MQ.getNamesrv());
        producer.setMqClientApiTimeout(PATIENCE_MS);
        producer.start();
        producer.send(new Message("warm-up", new byte[1]), PATIENCE_MS); // on a busy machine the first one is slow
        Message order = new Message("orders", "order-17".getBytes());
        MQ.answerLost("send", 1);
        assertThrows(RemotingException.class, () -> producer.send(order, 10_000));
        producer.send(order, PATIENCE_MS);
        producer.shutdown();

        assertEquals(List.of("order-17", "order-17"), received(2));
        String duplicates = MQ.duplicates("billing");
        assertTrue(duplicates.contains("\"cause\":\"P1\""), duplicates);
    }

    @Test
    void aFaultThatThereIsNotSaysWhatThereIs() {
        IllegalStateException refused = assertThrows(IllegalStateException.class, () -> MQ.answerLost("snd", 1));
        assertTrue(refused.getMessage().contains("operation is one of send"), refused.getMessage());
    }

    private static List<String> received(int count) throws Exception {
        DefaultLitePullConsumer consumer = new DefaultLitePullConsumer("billing");
        consumer.setNamesrvAddr(MQ.getNamesrv());
        consumer.setMqClientApiTimeout(PATIENCE_MS);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe("orders", "*");
        consumer.start();
        List<String> bodies = new ArrayList<>();
        long until = System.currentTimeMillis() + 120_000;
        while (bodies.size() < count && System.currentTimeMillis() < until) {
            for (MessageExt message : consumer.poll(1_000)) {
                bodies.add(new String(message.getBody()));
            }
        }
        consumer.shutdown();
        return bodies;
    }
}
